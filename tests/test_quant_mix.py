"""The `quantize` option: what it means for each block, and one line for what it cannot mean."""

import itertools
import subprocess
import sys

import pytest

from minillm.errors import InputError
from minillm.quant.mix import Mix

BLOCKS = list(itertools.product(range(6), ("attention", "mlp")))


def meaning(text: str) -> list[str]:
    """For layers 0 to 5 the formats of attention and MLP, "-" for none: "int8 int4"."""
    mix = Mix.parse(text)
    names = [getattr(mix.format(*block), "name", "-") for block in BLOCKS]
    return [f"{attention} {mlp}" for attention, mlp in zip(names[::2], names[1::2], strict=True)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("int8", ["int8 int8"] * 6),
        ("none", ["- -"] * 6),
        ("attn=int8,mlp=int4", ["int8 int4"] * 6),
        ("mlp=int4-sym", ["- int4-sym"] * 6),
        ("fp8,mlp=int4", ["fp8 int4"] * 6),
        ("mlp=int4,layers.0-3.mlp=int8", ["- int8"] * 4 + ["- int4"] * 2),
        ("layers.0-3.mlp=int8,mlp=int4", ["- int8"] * 4 + ["- int4"] * 2),  # the order does not matter
        ("int4,layers.0=none,layers.5.attn=fp8", ["- -"] + ["int4 int4"] * 4 + ["fp8 int4"]),
        ("int4,layers.1-2=int8,layers.2.mlp=fp8", ["int4 int4", "int8 int8", "int8 fp8"] + ["int4 int4"] * 3),
        (" int8 , mlp = int4 ", ["int8 int4"] * 6),
        ("layers.4-9=int8", ["- -"] * 4 + ["int8 int8"] * 2),
    ],
)
def test_meaning(text, expected):
    assert meaning(text) == expected


@pytest.mark.parametrize("text", ["int8", "attn=int8,mlp=int4", "int4,layers.0=none,layers.1-3.mlp=fp8"])
def test_its_text_means_the_same(text):
    assert str(Mix.parse(text)) == text
    assert Mix.parse(str(Mix.parse(text))) == Mix.parse(text)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("int3", "format 'int3': minillm knows int8, int4, int4-sym, fp8 and none"),
        ("attn=", "format ''"),
        ("int8,int4", "gives everything two formats, int8 and int4: keep one"),
        ("mlp=int8,mlp=none", "gives mlp two formats, int8 and none"),
        ("layers.0-3=int8,layers.2-5=fp8", "gives layers.2-5 two formats"),
        ("experts=int8", "'experts=int8': it must be FORMAT, attn=FORMAT"),
        ("layers.=int8", "'layers.=int8'"),
        ("layers.1mlp=int8", "'layers.1mlp=int8'"),
        ("layers.1.=int8", "'layers.1.=int8'"),
        ("=int8", "'=int8'"),
        ("layers.3-1=int8", "ends before it begins"),
        ("int8,,mlp=int4", "format ''"),
        ("", "quantize is ''"),
        (8, "quantize is 8"),
    ],
)
def test_bad_text(text, line):
    with pytest.raises(InputError, match=r"^quantize ") as error:
        Mix.parse(text)
    assert line in str(error.value)
    assert "\n" not in str(error.value)


def test_the_same_format_twice_is_no_contradiction():
    assert meaning("layers.0-3=int8,layers.2-5=int8") == ["int8 int8"] * 6


def test_layers_that_the_model_lacks():
    mix = Mix.parse("int4,layers.4-8=int8")
    mix.check(9)
    with pytest.raises(InputError, match=r"has layers\.4-8, but the model has 8 layers: at most layers\.7"):
        mix.check(8)


def test_sizes_and_mixes_need_no_torch():
    code = "import sys, minillm.quant.mix; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]
