"""The mix of formats for a model that has to fit a number of bytes, by measured damage.

What is asked for is checked from the shapes alone, before anything is loaded. Then each block is measured by
itself (`sensitivity.py`) and a mix is chosen by the sums; this mix, the one that spends what it left of the
budget, and the uniform formats that fit are measured as they are, and the best of them is taken, since sums
are an assumption.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from minillm import memory
from minillm.config import DTYPES, ModelConfig
from minillm.errors import InputError, RunError
from minillm.quant import sensitivity
from minillm.quant.mix import NONE, Mix, with_mix
from minillm.units import GIB

CANDIDATES = ("int8", "int4", "int4-sym")


@dataclass(frozen=True)
class Row:
    """Neighbouring layers of one part that get one format. Bytes, and nats a token as predicted."""

    part: str  # "attention" or "mlp"
    layers: range
    format: str
    before: int
    after: int
    damage: float


@dataclass(frozen=True)
class Sizes:
    """What is known of a model before it is measured, in bytes."""

    blocks: dict[sensitivity.Choice, int]
    formats: tuple[str, ...]  # of `CANDIDATES`, those that every matrix can be stored in
    rest: int  # embedding, head and last norm, which stay as they are

    @classmethod
    def of(cls, config: ModelConfig) -> "Sizes":
        """Sizes at the configuration's dtype; InputError for a model that no format can store."""
        formats = tuple(name for name in CANDIDATES if _takes(config, name))
        if not formats:
            with_mix(config, CANDIDATES[0])  # raises, and names the matrix
        plan = memory.plan(config, DTYPES[config.dtype], 1)
        blocks = sensitivity.sizes(config, DTYPES[config.dtype], formats)
        return cls(blocks, formats, plan.weights - plan.layers)

    @property
    def full(self) -> int:
        """The model as it is."""
        return self.rest + sum(size for (*_, name), size in self.blocks.items() if name == NONE)

    @property
    def least(self) -> int:
        """Each block in its smallest format."""
        blocks = groupby(self.blocks.items(), key=lambda item: item[0][:2])
        return self.rest + sum(min(size for _, size in choices) for _, choices in blocks)

    def mixed(self, mix: Mix) -> int:
        return self.rest + sensitivity.total(self.blocks, mix)

    def check(self, budget_gib: float) -> None:
        """Raise InputError for a budget below the least, or one that the model fits as it is."""
        if int(budget_gib * GIB) < self.least:
            raise InputError(
                f"--budget-gib is {budget_gib:g}: the smallest formats take {_up(self.least)} GiB, give that"
            )
        if int(budget_gib * GIB) >= self.full:
            raise InputError(
                f"--budget-gib is {budget_gib:g}, and the model takes {_up(self.full)} GiB as it is: "
                "nothing needs quantising"
            )


@dataclass(frozen=True)
class Fit:
    """The mix that was chosen, and what was measured on the way. Damage is in nats a token."""

    mix: Mix
    sizes: Sizes
    damages: dict[sensitivity.Choice, float]
    measured: float  # of the mix itself

    @property
    def predicted(self) -> float:
        return sensitivity.total(self.damages, self.mix)

    def rows(self) -> list[Row]:
        """Attention, then MLP, from the first layer to the last."""
        blocks = sorted(dict.fromkeys(choice[:2] for choice in self.damages), key=lambda b: (b[1], b[0]))
        named = [(*block, sensitivity.format_name(self.mix, *block)) for block in blocks]
        return [self._row(list(run)) for _, run in groupby(named, key=lambda choice: choice[1:])]

    def _row(self, run: list[sensitivity.Choice]) -> Row:
        (first, part, name), last = run[0], run[-1][0]
        before = sum(self.sizes.blocks[layer, part, NONE] for layer, *_ in run)
        after, damage = (sum(values[c] for c in run) for values in (self.sizes.blocks, self.damages))
        return Row(part, range(first, last + 1), name, before, after, damage)


def measurements(sizes: Sizes) -> int:
    """How many steps `fit` reports."""
    return sum(choice[2] != NONE for choice in sizes.blocks)


def fit(
    probe: sensitivity.Probe, sizes: Sizes, budget_gib: float, advance: Callable[[], None] = lambda: None
) -> Fit:
    """The mix with the least measured damage of those considered; `advance` is called after each block.

    Raises as `Sizes.check` does, and RunError for a model whose logits are no numbers.
    """
    sizes.check(budget_gib)
    budget = int(budget_gib * GIB)
    damages = probe.damages(sizes.formats, advance)
    if not all(map(math.isfinite, damages.values())):
        raise RunError("the model's logits are not finite: try --dtype float32, or check its weights")
    chosen = sensitivity.choose(damages, sizes.blocks, budget - sizes.rest)
    filled = fill(chosen, damages, sizes.blocks, budget - sizes.rest)
    mixes = dict.fromkeys([chosen, filled, *_uniform(sizes.formats)])
    measured = [(probe.damage(mix), sizes.mixed(mix), mix) for mix in mixes if sizes.mixed(mix) <= budget]
    damage, _, mix = min(measured, key=lambda found: found[:2])
    return Fit(mix, sizes, damages, damage)


def fill(
    mix: Mix,
    damages: Mapping[sensitivity.Choice, float],
    num_bytes: Mapping[sensitivity.Choice, int],
    budget_bytes: int,
) -> Mix:
    """`mix`, and what it leaves of the budget spent on steps that still fit, the best for each byte first.

    `sensitivity.choose` ends at the first step that does not fit, and smaller ones after it are left out:
    what it chooses is the best for the bytes it uses, and this saves as much or more within the same budget.
    """
    chosen = {choice[:2]: sensitivity.format_name(mix, *choice[:2]) for choice in damages}
    left = budget_bytes - sensitivity.total(num_bytes, mix)
    while True:
        steps = []
        for choice in damages:
            now = (*choice[:2], chosen[choice[:2]])
            saves, costs = damages[now] - damages[choice], num_bytes[choice] - num_bytes[now]
            if saves > 0 and costs <= left:
                steps.append((saves / max(costs, 1), costs, choice))
        if not steps:
            return sensitivity.mix_of(chosen)
        _, costs, (*block, name) = max(steps)
        left -= costs
        chosen[tuple(block)] = name


def _uniform(formats: Sequence[str]) -> list[Mix]:
    return [Mix.parse(name) for name in formats]


def _takes(config: ModelConfig, name: str) -> bool:
    try:
        with_mix(replace(config, quantize=None), name)
    except InputError:
        return False
    return True


def _up(num_bytes: int) -> str:
    """GiB, rounded up so that giving the number is enough."""
    return f"{math.ceil(num_bytes / GIB * 10**4) / 10**4:.4f}"
