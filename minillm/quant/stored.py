"""Models whose matrices are quantised in their files already, by what `config.json` says of them. No torch.

{"quant_method": "minillm", "quantize": "attn=int8,mlp=int4"}       saved by `python -m minillm quantize`
{"quant_method": "gptq" or "awq", "bits": 4, "group_size": 128}     of others, group_size -1: whole rows
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from minillm.checks import shown, whole
from minillm.config import ModelConfig
from minillm.errors import InputError
from minillm.geometry import PARTS, block_shapes
from minillm.quant.formats import Format, int4_format
from minillm.quant.mix import Mix, with_mix

BITS = 4
METHODS = ("minillm", "gptq", "awq")
ZERO_OFFSETS = {"gptq": 1, "gptq_v2": 0}  # checkpoint_format → what its stored zeros lack


@dataclass(frozen=True)
class StoredFormats:
    """Which format each matrix has in a file of others; what `Mix` says for ours."""

    kind: str  # as people call it: "gptq", "Q4_K"
    formats: dict[str, Format] = field(hash=False, repr=False)  # by name, "layers.0.mlp.up_proj.weight"
    zero_offset: int = 0  # of gptq: what its stored zeros lack
    needs_order: bool = False  # of gptq, desc_act: without a g_idx nobody knows the columns' groups

    def format(self, index: int, part: str, name: str) -> Format | None:
        """The format of a matrix of layer `index`; None: as the file stores it."""
        return self.formats.get(f"layers.{index}.{name}")

    def __str__(self) -> str:
        return self.kind


def auto_dtype(config: ModelConfig, on_cpu: bool) -> str:
    """What dtype "auto" means: as stored, or float32 for a packed GGUF file on the CPU.

    There its matrices are expanded for each product, in 16 bits no faster, and 16 bits change answers whose
    two best tokens are close.
    """
    stored = config.quantize
    packed_gguf = isinstance(stored, StoredFormats) and stored.kind not in METHODS
    return "float32" if packed_gguf and on_cpu else config.dtype


def read_settings(config: ModelConfig, settings: Any) -> Mix | StoredFormats:
    """The formats that a `quantization_config` names; InputError for what minillm does not read."""
    method = settings.get("quant_method") if isinstance(settings, dict) else settings
    if not isinstance(settings, dict) or method not in METHODS:
        raise InputError(
            f"quantization_config with quant_method {shown(method)} is not supported: minillm reads "
            f"{', '.join(METHODS)} and unquantised weights, choose the model's bfloat16 release"
        )
    if method == "minillm":
        return with_mix(config, settings.get("quantize")).quantize
    _check_bits(settings, method)
    offset, keeps_dense = _gptq(settings) if method == "gptq" else _awq(settings)
    group = _group(settings)
    formats = {}
    for name, shape in _projections(config):
        if keeps_dense(name):
            continue
        if shape[1] % (group or 1):
            raise InputError(
                f"group_size {group} of {method} does not divide the {shape[1]} columns of {name}: "
                "choose another checkpoint"
            )
        formats[name] = int4_format(group or shape[1], "zero")
    return StoredFormats(method, formats, offset, method == "gptq" and bool(settings.get("desc_act")))


def _check_bits(settings: dict, method: str) -> None:
    if settings.get("bits") != BITS:
        bits = shown(settings.get("bits"))
        raise InputError(f"{method} with {bits} bits is not supported: minillm reads {BITS}")
    if settings.get("lm_head"):
        raise InputError(f"{method} with a quantised lm_head is not supported: choose another checkpoint")


def _group(settings: dict) -> int:
    """Columns of a group; 0: the whole row."""
    size = settings.get("group_size", 128)
    return 0 if size == -1 else whole("group_size", size, 2)


def _gptq(settings: dict) -> tuple[int, Callable[[str], bool]]:
    """What the zeros lack, and which matrices are left as they were."""
    if settings.get("dynamic"):
        raise InputError("gptq with dynamic rules is not supported: choose a checkpoint without them")
    inside = settings.get("modules_in_block_to_quantize")
    chosen = _names("modules_in_block_to_quantize", inside, nested=True)
    offset = _zero_offset(settings)
    return offset, lambda name: bool(inside) and name.split(".", 2)[2].removesuffix(".weight") not in chosen


def _zero_offset(settings: dict) -> int:
    kind = "marlin" if settings.get("is_marlin_format") else settings.get("checkpoint_format")
    kind = "gptq" if kind is None else kind
    if not isinstance(kind, str) or kind not in ZERO_OFFSETS:
        raise InputError(
            f"gptq with checkpoint_format {shown(kind)} is not supported: minillm reads "
            f"{' and '.join(ZERO_OFFSETS)}, choose another checkpoint"
        )
    return ZERO_OFFSETS[kind]


def _awq(settings: dict) -> tuple[int, Callable[[str], bool]]:
    version = str(settings.get("version", "gemm")).lower()
    if version != "gemm":
        raise InputError(f"awq of version {version!r} is not supported: minillm reads gemm")
    if settings.get("zero_point", True) is not True:
        raise InputError(
            f"awq with zero_point {shown(settings['zero_point'])} is not supported: minillm reads true, "
            "choose another checkpoint"
        )
    left = _names("modules_to_not_convert", settings.get("modules_to_not_convert"))
    # Whole names: a router that is left out, "mlp.gate", is no reason to leave mlp.gate_proj out.
    return 0, lambda name: any(f".{key}." in f".model.{name}." for key in left)


def _names(key: str, value: Any, nested: bool = False) -> list[str]:
    """The names in a list, in the lists in it if `nested`; absent: none. InputError for anything else."""
    found = [] if value is None else value
    if nested and isinstance(found, list):
        found = [name for group in found for name in (group if isinstance(group, list) else [group])]
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        lists = "names or of lists of names" if nested else "names"
        raise InputError(f"{key} is {shown(value)}: it must be a list of {lists}")
    return found


def _projections(config: ModelConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and shapes of all matrices that can be quantised."""
    for index, part in product(range(config.num_hidden_layers), PARTS):
        for name, shape in block_shapes(config, index, part).items():
            if name.endswith("_proj.weight"):
                yield f"layers.{index}.{name}", shape
