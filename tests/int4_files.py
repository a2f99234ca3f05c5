"""GPTQ and AWQ checkpoints for the tests, packed one value at a time as their formats say."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)  # which row AutoAWQ puts at each place, from the lowest bits up


def signed(number: int) -> int:
    """32 bits as the int32 that holds them."""
    return number - (1 << 32) if number >= 1 << 31 else number


def packed_rows(table: list, order=range(8)) -> torch.Tensor:
    """[n][8k] numbers of four bits → int32 [n, k]; place p of each holds entry `order[p]` of its eight."""
    return torch.tensor(
        [
            [signed(sum(line[i + order[p]] << 4 * p for p in range(8))) for i in range(0, len(line), 8)]
            for line in table
        ],
        dtype=torch.int32,
    )


def transposed(table: list) -> list:
    return [list(line) for line in zip(*table, strict=True)]


def gptq_tensors(values: list, zeros: list, scales: torch.Tensor, offset: int = 1) -> dict:
    """Of values [in][out], zeros [groups][out] and scales [groups, out]."""
    group, stored = len(values) // len(zeros), [[zero - offset for zero in line] for line in zeros]
    return {
        "qweight": packed_rows(transposed(values)).T.contiguous(),
        "qzeros": packed_rows(stored),
        "scales": scales,
        "g_idx": torch.arange(len(values), dtype=torch.int32) // group,
    }


def awq_tensors(values: list, zeros: list, scales: torch.Tensor) -> dict:
    return {
        "qweight": packed_rows(values, AWQ_ORDER),
        "qzeros": packed_rows(zeros, AWQ_ORDER),
        "scales": scales,
    }


def brute_force(values: list, zeros: list, scales: torch.Tensor, group_of: list[int]) -> torch.Tensor:
    """[out, in] in Python's numbers."""
    scale, columns, rows = scales.double().tolist(), range(len(values)), range(len(values[0]))
    return torch.tensor(
        [
            [
                (values[column][row] - zeros[group_of[column]][row]) * scale[group_of[column]][row]
                for column in columns
            ]
            for row in rows
        ],
        dtype=torch.float64,
    )


def random_case(rows: int, columns: int, group: int, generator: torch.Generator) -> tuple:
    """Values, zeros and float16 scales of a matrix whose rows have a norm of about two."""
    values = torch.randint(0, 16, (columns, rows), generator=generator).tolist()
    zeros = torch.randint(5, 12, (columns // group, rows), generator=generator).tolist()
    scales = (0.5 + torch.rand(columns // group, rows, generator=generator)) * 0.4 * columns**-0.5
    return values, zeros, scales.half()


def write_int4(
    folder: Path, reference, kind: str, group: int, dense: tuple[str, ...] = (), **settings
) -> Path:
    """A transformers Qwen3 as a GPTQ or AWQ checkpoint whose projections hold random values.

    The reference gets the dequantised ones. Projections whose names hold one of `dense` stay as they are.
    """
    generator, tensors = torch.Generator().manual_seed(1), {}
    for name, parameter in reference.state_dict().items():
        rows_of_eight = name.endswith("_proj.weight") and not any(part in name for part in dense)
        if not rows_of_eight:
            tensors[name] = parameter.clone()  # a tied head is the embedding once more
            continue
        rows, columns = parameter.shape
        case = random_case(rows, columns, group, generator)
        packed = (gptq_tensors if kind == "gptq" else awq_tensors)(*case)
        tensors |= {f"{name.removesuffix('weight')}{key}": tensor for key, tensor in packed.items()}
        parameter.copy_(brute_force(*case, [column // group for column in range(columns)]))
    folder.mkdir(parents=True)
    reference.config.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": kind, "bits": 4, "group_size": group} | settings
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors")
    return folder
