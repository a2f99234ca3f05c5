"""Where quantising happens: on the model's device, by pieces, with the bits of the whole; and its memory."""

from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch

from minillm import ModelConfig, fast_path, flat, presets
from minillm.budget import Decision, Request, decide
from minillm.model_source import shipped_folder
from minillm.quant import codec, int4
from minillm.quant.formats import FORMATS
from minillm.quant.mix import quantised
from minillm.quant.weight import PackedWeight
from minillm.schedule import place
from minillm.weights import build_offloaded

ALL = [pytest.param(format, id=name) for name, format in FORMATS.items()]
ROWS, COLUMNS, STEP = 23, 384, 5  # four whole pieces and one of three rows


@dataclass(frozen=True)
class FakeGpu:
    """What `made_on` is asked: its type alone."""

    type: str = "cuda"


class Dense:
    """A matrix whose rows go to a device that is none: they stay where they are, and it is written down."""

    def __init__(self, matrix: torch.Tensor):
        self.matrix, self.sent = matrix, []

    @property
    def shape(self) -> torch.Size:
        return self.matrix.shape

    def __getitem__(self, rows: slice) -> "Dense":
        piece = Dense(self.matrix[rows])
        piece.sent = self.sent
        return piece

    def to(self, device: FakeGpu, dtype: torch.dtype) -> torch.Tensor:
        self.sent.append((len(self.matrix), device))
        return self.matrix.to(dtype)


def weights() -> torch.Tensor:
    return torch.randn(ROWS, COLUMNS, generator=torch.Generator().manual_seed(8)) * 0.02


def same_bits(ours: codec.Parts, expected: codec.Parts) -> bool:
    return ours.keys() == expected.keys() and all(
        torch.equal(ours[name].view(torch.uint8), expected[name].view(torch.uint8)) for name in ours
    )


@pytest.mark.parametrize("format", ALL)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_go_to_the_device_by_pieces(format, dtype, monkeypatch):
    expected = codec.quantise(format, weights().to(dtype))
    monkeypatch.setitem(codec.PIECE_BYTES, "cuda", STEP * COLUMNS * 4)
    packed = PackedWeight("weight", format, codec.empty(format, ROWS, COLUMNS), COLUMNS, dtype)
    packed.made_on, dense = FakeGpu(), Dense(weights())
    packed.copy_(dense)
    assert dense.sent == [(rows, packed.made_on) for rows in (5, 5, 5, 5, 3)]
    assert same_bits(packed.parts, expected)


@pytest.mark.parametrize("format", ALL)
def test_pieces_on_the_cpu_do_not_show(format, monkeypatch):
    expected = codec.quantise(format, weights())
    monkeypatch.setitem(codec.PIECE_BYTES, "cpu", STEP * COLUMNS * 4)
    packed = PackedWeight("weight", format, codec.empty(format, ROWS, COLUMNS), COLUMNS, torch.float32)
    packed.copy_(weights())
    assert same_bits(packed.parts, expected)


class Elsewhere:
    """An accelerator with a device that holds no numbers: what would be made there shows its device."""

    device, pins, recorder = torch.device("meta"), False, None

    def empty(self, num_bytes: int) -> torch.Tensor:
        return flat.aligned_buffer(num_bytes, self.device)

    def eager_because(self, dtype: torch.dtype) -> str:
        return "nothing is computed here"


class SeenError(Exception):
    pass


@pytest.mark.parametrize("mix", ["int8", "int4", "int4-sym", "fp8"])
def test_layers_in_host_memory_are_quantised_on_the_device(mix):
    config = quantised(ModelConfig.from_folder(shipped_folder("tiny")), mix)
    layers = config.num_hidden_layers
    seen = []

    def fill(parameters):
        seen.extend(weight for _, weight in parameters if isinstance(weight, PackedWeight))
        raise SeenError  # there are no numbers to fill in

    decision = Decision("prefetch", place(layers, 2, 1), 0, 16, host_layers=tuple(range(layers)))
    with pytest.raises(SeenError):
        build_offloaded(config, torch.bfloat16, decision, Elsewhere(), fill)
    assert len(seen) == 7 * layers
    for weight in seen:
        assert weight.is_cpu
        assert weight.made_on == weight.empty().device == Elsewhere.device


# ---- the same bits on every device ----


@pytest.mark.parametrize("width", [1, 2, 6, 7, 64, 100, 128])
def test_sums_of_any_width(width):
    numbers = torch.randn(3, 2, width, generator=torch.Generator().manual_seed(9))
    got = int4._sum(numbers)
    assert got.shape == (3, 2, 1)
    assert torch.allclose(got.double(), numbers.double().sum(-1, keepdim=True), rtol=1e-5, atol=1e-5)


def test_sums_do_not_depend_on_how_rows_lie_in_memory():
    """A device that goes through memory differently adds the same numbers to each other."""
    numbers = torch.randn(64, 3, 128, generator=torch.Generator().manual_seed(10)).square()
    transposed = numbers.permute(2, 1, 0).contiguous().permute(2, 1, 0)
    assert torch.equal(int4._sum(numbers), int4._sum(transposed))


@pytest.mark.parametrize("format", ALL)
def test_zeros_of_both_signs_have_one_scale(format):
    """Which zero is the least or the greatest is the device's choice; it must not be seen in a part."""
    zeros = torch.zeros(2, COLUMNS)
    zeros[0, ::2] = zeros[1, 1::2] = -0.0
    parts = codec.quantise(format, zeros)
    if format.name != "int4-sym":  # whose sign is the first weight's
        assert all(parts[name].view(torch.uint8).count_nonzero() == 0 for name in {*parts} - {"packed"})
    assert codec.dequantise(format, parts).count_nonzero() == 0


def test_the_first_of_equal_magnitudes_is_taken():
    """int4-sym: the sign of its scale is that of the first, as `torch.argmax` promises for every device."""
    row = torch.zeros(2, 64)
    row[0, 3], row[0, 40] = 1.0, -1.0
    row[1, 3], row[1, 40] = -1.0, 1.0
    scale = codec.quantise(FORMATS["int4-sym"], row)["scale"]
    assert (scale[0] < 0).all()
    assert (scale[1] > 0).all()


def test_memory_for_expanding_is_planned_on_a_gpu_only():
    config = quantised(presets.load("Qwen3-8B"), "int4")
    planned = {
        scratch: decide(
            Request(config=config, dtype_bytes=2, tokens=512, gpu_layer_budget=4, scratch=scratch)
        )
        for scratch in (0, codec.scratch_bytes(torch.device("cuda")))
    }
    without, with_it = planned.values()
    assert codec.scratch_bytes(torch.device("cpu")) == 0
    assert with_it.device_bytes - without.device_bytes == codec.scratch_bytes(torch.device("cuda")) > 0


@pytest.mark.parametrize(
    ("quantize", "eager", "pieces"),
    [
        ("int4", None, 1),
        ("int4", "why not", 4),
        ("int8", None, 4),
        ("attn=int8,mlp=int4", None, 4),
        (None, None, 0),
    ],
)
def test_an_expanding_kernel_needs_memory_for_the_piece_alone(quantize, eager, pieces):
    config = presets.load("Qwen3-8B")
    config = quantised(config, quantize) if quantize else config
    gpu = SimpleNamespace(device=torch.device("cuda"), eager_because=lambda _: eager)
    assert fast_path.scratch_bytes(gpu, config, torch.bfloat16) == pieces * codec.PIECE_BYTES["cuda"]
