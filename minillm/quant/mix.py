"""The `quantize` option: one format, or one for attention and one for the MLP, by layer too. No torch.

    int8                                    every matrix of every layer
    attn=int8,mlp=int4                      by part
    mlp=int4,layers.0-3.mlp=int8            … with exceptions
    int4,layers.0=none                      none: as the checkpoint stores it

What says more wins, wherever it stands: layers and part, then layers, then part, then everything.
"""

import re
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

from minillm.checks import shown
from minillm.config import ModelConfig
from minillm.errors import InputError
from minillm.geometry import block_shapes
from minillm.quant.formats import FORMATS, Format

NONE = "none"
PARTS = {"attn": "attention", "mlp": "mlp"}  # as the option says it → as geometry does
_KEY = re.compile(r"(?:layers\.(?P<first>\d{1,4})(?:-(?P<last>\d{1,4}))?(?:\.|$))?(?P<part>attn|mlp)?")
_SHAPES = "FORMAT, attn=FORMAT, mlp=FORMAT, layers.A-B=FORMAT or layers.A-B.mlp=FORMAT"


@dataclass(frozen=True)
class Rule:
    """A format for some layers and parts."""

    key: str  # as written, "" for everything
    layers: range | None  # None: all
    part: str | None  # "attention" or "mlp", None: both
    format: Format | None  # None: not quantised

    @property
    def rank(self) -> int:
        """How much it says."""
        return 2 * (self.layers is not None) + (self.part is not None)

    def covers(self, index: int, part: str) -> bool:
        return (self.layers is None or index in self.layers) and self.part in (None, part)


@dataclass(frozen=True)
class Mix:
    """Which format each block gets."""

    rules: tuple[Rule, ...]

    @classmethod
    def parse(cls, text: str) -> "Mix":
        """Read the option; InputError in one line for what it cannot mean."""
        if not isinstance(text, str) or not text.strip():
            raise InputError(f"quantize is {shown(text)}: give {_SHAPES}, joined by commas")
        mix = cls(tuple(_rule(item.strip()) for item in text.split(",")))
        mix._check_conflicts()
        return mix

    def format(self, index: int, part: str, name: str = "") -> Format | None:
        """The format of block `part` ("attention" or "mlp") of layer `index`; None: not quantised.

        The same for each of its matrices, whatever their `name`.
        """
        ranked = [rule for rule in self._by_rank if rule.covers(index, part)]
        return ranked[0].format if ranked else None

    def check(self, layers: int) -> None:
        """Raise InputError where a rule names layers that a model of so many does not have."""
        for rule in self.rules:
            if rule.layers is not None and rule.layers.stop > layers:
                raise InputError(
                    f"quantize has {rule.key}, but the model has {layers} layers: at most layers.{layers - 1}"
                )

    def __str__(self) -> str:
        """Text that parses to the same mix."""
        return ",".join(f"{rule.key}={_name(rule)}" if rule.key else _name(rule) for rule in self.rules)

    @cached_property
    def _by_rank(self) -> list[Rule]:
        return sorted(self.rules, key=lambda rule: -rule.rank)

    def _check_conflicts(self) -> None:
        for place, rule in enumerate(self.rules):
            for other in self.rules[:place]:
                if _meet(rule, other) and rule.format != other.format:
                    what = rule.key or "everything"
                    raise InputError(
                        f"quantize gives {what} two formats, {_name(other)} and {_name(rule)}: keep one"
                    )


def quantised(config: ModelConfig, quantize: str | None) -> ModelConfig:
    """The same model with its layers' matrices in these formats; InputError where they cannot be."""
    if quantize is None:
        return config
    if config.quantize is not None:
        raise InputError(
            f"quantize is {shown(quantize)}, but the model is stored as {config.quantize} already: "
            "leave quantize out"
        )
    return with_mix(config, quantize)


def with_mix(config: ModelConfig, quantize: str) -> ModelConfig:
    """The same model in the formats of that mix, checked against its matrices."""
    mix = Mix.parse(quantize)
    mix.check(config.num_hidden_layers)
    config = replace(config, quantize=mix)
    check_formats(config)
    return config


def check_formats(config: ModelConfig) -> None:
    """Raise InputError for the first matrix that its format cannot store."""
    for index, (key, part) in product(range(config.num_hidden_layers), PARTS.items()):
        shapes = block_shapes(config, index, part)
        for name, format in config.formats(index, part).items():
            format.check(f"model.layers.{index}.{name}", shapes[name], key)


def _rule(item: str) -> Rule:
    key, equals, name = (piece.strip() for piece in item.rpartition("="))
    found = _KEY.fullmatch(key)
    if not found or bool(equals) != bool(key) or key.endswith("."):
        raise InputError(f"quantize has {shown(item)}: it must be {_SHAPES}")
    return Rule(key, _layers(key, found["first"], found["last"]), PARTS.get(found["part"]), _format(name))


def _layers(key: str, first: str | None, last: str | None) -> range | None:
    if first is None:
        return None
    layers = range(int(first), int(last or first) + 1)
    if not layers:
        raise InputError(
            f"quantize has {key}, a range that ends before it begins: the lower layer comes first"
        )
    return layers


def _format(name: str) -> Format | None:
    if name not in FORMATS and name != NONE:
        raise InputError(
            f"quantize has the format {shown(name)}: minillm knows {', '.join(FORMATS)} and {NONE}"
        )
    return FORMATS.get(name)


def _name(rule: Rule) -> str:
    return rule.format.name if rule.format else NONE


def _meet(rule: Rule, other: Rule) -> bool:
    """Whether both say equally much about the same block."""
    if (rule.part, rule.layers is None) != (other.part, other.layers is None):
        return False
    if rule.layers is None:
        return True
    return rule.layers.start < other.layers.stop and other.layers.start < rule.layers.stop
