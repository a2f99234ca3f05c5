"""Quantised blocks in a layer's flat buffer: sizes from shapes alone, and what is written is what is read."""

import itertools

import pytest
import torch

from minillm import presets
from minillm.errors import InputError
from minillm.flat import aligned_buffer
from minillm.geometry import ALIGNMENT, PARTS, block_shapes
from minillm.quant import codec
from minillm.quant.formats import FORMATS
from minillm.quant.layout import block_layout

MODELS = ["Qwen3-0.6B", "Qwen3-8B", "Qwen3-30B-A3B"]


def all_in(format, shapes) -> dict:
    """`format` for every projection; None: for none."""
    return {name: format for name in shapes if name.endswith("_proj.weight") and format}


def layouts(model: str, format, dtype: str = "bfloat16"):
    """Both blocks of layer 0, one behind the other."""
    config, begin = presets.load(model), 0
    for part in PARTS:
        shapes = block_shapes(config, 0, part)
        layout = block_layout(shapes, all_in(format, shapes), dtype, begin)
        yield shapes, layout
        begin = layout.end


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("format", [None, *FORMATS.values()])
def test_every_parameter_has_its_place(model, format):
    end = 0
    for shapes, layout in layouts(model, format):
        assert [name for entry in layout.entries for name in entry.names] == list(shapes)
        for entry in layout.entries:
            assert sum(entry.rows) * entry.columns == sum(_count(shapes[name]) for name in entry.names)
            for place in entry.places:
                assert place.offset % ALIGNMENT == 0
                assert place.offset >= end
                end = place.offset + place.num_bytes
        assert end <= layout.end < end + ALIGNMENT
        assert layout.num_bytes == layout.end - layout.begin


def _count(shape) -> int:
    return shape[0] * shape[1] if len(shape) == 2 else shape[0]


def test_projections_of_one_input_are_stacked():
    (_, attention), (_, mlp) = layouts("Qwen3-8B", FORMATS["int4"])
    stacked = {entry.names: entry for entry in (*attention.entries, *mlp.entries) if len(entry.names) > 1}
    assert [[name.split(".")[1] for name in names] for names in stacked] == [
        ["q_proj", "k_proj", "v_proj"],
        ["gate_proj", "up_proj"],
    ]
    qkv = next(iter(stacked.values()))
    assert qkv.rows == (4096, 1024, 1024)
    assert qkv.row_range("self_attn.k_proj.weight") == (4096, 5120)


def test_experts_are_stacked_each_for_itself_and_the_router_stays_dense():
    _, (_, mlp) = layouts("Qwen3-30B-A3B", FORMATS["int8"])
    assert [entry.format.name for entry in mlp.entries[:3]] == ["bfloat16", "bfloat16", "int8"]
    assert mlp.entries[1].names == ("mlp.gate.weight",)
    assert mlp.entries[2].names == ("mlp.experts.0.gate_proj.weight", "mlp.experts.0.up_proj.weight")
    assert len(mlp.entries) == 2 + 2 * 128


def test_only_neighbours_in_one_format_are_stacked():
    shapes = {f"self_attn.{name}_proj.weight": (32, 256) for name in "qkvo"}
    q, k, v, o = shapes
    int8, int4 = FORMATS["int8"], FORMATS["int4"]
    for formats, expected in [
        ({q: int8, k: int8, v: int4, o: int4}, [(q, k), (v,), (o,)]),
        ({q: int8, k: int4, v: int4, o: int4}, [(q,), (k, v), (o,)]),
        ({q: int8, v: int8}, [(q,), (k,), (v,), (o,)]),
    ]:
        layout = block_layout(shapes, formats, "float32")
        assert [entry.names for entry in layout.entries] == expected
        assert {n: e.format.name for e in layout.entries for n in e.names} == {
            name: formats[name].name if name in formats else "float32" for name in shapes
        }


def test_biases_keep_projections_apart():
    shapes = {
        "self_attn.q_proj.weight": (64, 128),
        "self_attn.q_proj.bias": (64,),
        "self_attn.k_proj.weight": (32, 128),
    }
    layout = block_layout(shapes, all_in(FORMATS["int4"], shapes), "float32")
    assert [entry.names for entry in layout.entries] == [(name,) for name in shapes]
    assert layout.entries[1].places[0].num_bytes == 64 * 4


@pytest.mark.parametrize(
    ("name", "least"), [("int8", 1.99), ("fp8", 1.99), ("int4", 3.75), ("int4-sym", 3.75)]
)
def test_a_layer_of_8b_shrinks(name, least):
    """By 2 and 16 / 4.25, less scales, norms and rounding up."""
    whole = sum(layout.num_bytes for _, layout in layouts("Qwen3-8B", None))
    packed = sum(layout.num_bytes for _, layout in layouts("Qwen3-8B", FORMATS[name]))
    assert least < whole / packed < 16 / (4.25 if "4" in name else 8)


@pytest.mark.parametrize("format", FORMATS.values())
def test_stacked_rows_are_written_one_parameter_at_a_time(format):
    """As a loader does it: each parameter into its rows of the stacked parts, in one buffer."""
    shapes = {"q_proj": (40, 256), "k_proj": (24, 256), "v_proj": (24, 256)}
    shapes = {"norm.weight": (256,)} | {f"self_attn.{name}.weight": shape for name, shape in shapes.items()}
    layout = block_layout(shapes, all_in(format, shapes), "float32", begin=100)
    buffer = aligned_buffer(layout.end, "cpu")
    generator = torch.Generator().manual_seed(0)
    weights = {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    entry = layout.entries[1]
    parts = codec.at(entry.places, buffer)
    for name in reversed(entry.names):
        codec.write(format, weights[name], codec.rows_of(parts, *entry.row_range(name)), name)
    for name in entry.names:
        alone = codec.dequantise(format, codec.quantise(format, weights[name]))
        assert torch.equal(codec.dequantise(format, codec.rows_of(parts, *entry.row_range(name))), alone)
    offsets = [place.offset for entry in layout.entries for place in entry.places]
    assert all(a < b for a, b in itertools.pairwise(offsets))


def test_a_projection_that_cannot_be_stored_is_named():
    shapes = {"mlp.down_proj.weight": (64, 192), "mlp.gate.weight": (8, 100)}
    with pytest.raises(
        InputError, match=r"mlp\.down_proj\.weight has 192 columns, which int4's groups of 128"
    ):
        block_layout(shapes, all_in(FORMATS["int4"], shapes), "bfloat16")
    block_layout(
        shapes, all_in(FORMATS["int4-sym"], shapes), "bfloat16"
    )  # the router's 100 columns do not matter
