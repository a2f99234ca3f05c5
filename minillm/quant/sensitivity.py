"""What each block costs in quality when it is quantised, measured, and the mix to choose under a byte budget.

One block at a time is changed to what a format would make of it and then put back, and the model's next-token
distributions on a few prompts are compared with those it gave before.

That the damages of single blocks add up is an assumption. On `tiny` the sum was 0.6 to 1.1 of what the whole
mix did, for a dozen mixes: good enough to choose by, not to report. `Probe.damage` measures the mix itself.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby, pairwise, product

import torch

from minillm.config import ModelConfig
from minillm.errors import InputError
from minillm.geometry import PARTS
from minillm.llm import LLM
from minillm.memory import block_bytes
from minillm.quant import codec
from minillm.quant.mix import NONE, Mix
from minillm.quant.mix import PARTS as SHORT

Block = tuple[int, str]  # layer, "attention" or "mlp"
Choice = tuple[int, str, str]  # … and the name of a format, "none" for as it is
Step = tuple[float, int, Block, str]  # damage saved for each byte, bytes more, block, its format from then on


def divergence(reference: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    """Kullback-Leibler divergence in nats at each position; both [T, vocab] → [T], float64.

    How surprised one is on average, beyond what is necessary, who expects the tokens of `reference` with the
    probabilities of `logits`.
    """
    p, q = (x.double().log_softmax(-1) for x in (reference, logits))
    return (p.exp() * (p - q)).sum(-1).clamp(min=0)


class Probe:
    """An LLM with dense weights that are all on its device, and what it answers on some prompts."""

    def __init__(self, llm: LLM, prompts: Sequence[list[int]]):
        """`prompts`: token ids. Raises InputError where blocks cannot be changed in place."""
        if llm.config.quantize is not None:
            raise InputError(f"quantize is {str(llm.config.quantize)!r}: measure on the model without it")
        if llm.decision.placement.streamed:
            count = len(llm.decision.placement.streamed)
            raise InputError(f"{count} layers stream: measure on a model that stays on the device")
        if not prompts:
            raise InputError("no prompt to measure damage on: give at least one")
        self.llm, self.prompts = llm, list(prompts)
        self.reference = [llm.logits(prompt) for prompt in self.prompts]

    def damage(self, mix: Mix | str) -> float:
        """Mean divergence over all positions of the prompts with the blocks that `mix` names changed."""
        mix = Mix.parse(mix) if isinstance(mix, str) else mix
        mix.check(self.llm.config.num_hidden_layers)
        with _changed(self.llm, mix):
            logits = map(self.llm.logits, self.prompts)
            each = [divergence(*pair) for pair in zip(self.reference, logits, strict=True)]
        return torch.cat(each).mean().item()

    def damages(
        self, formats: Sequence[str] = ("int8", "int4"), advance: Callable[[], None] = lambda: None
    ) -> dict[Choice, float]:
        """The damage of each block alone in each format; as it is, "none", it is 0. `advance`: after each."""
        found = {}
        for (layer, part), name in product(_blocks(self.llm.config), (NONE, *formats)):
            alone = f"layers.{layer}.{_short(part)}={name}"
            found[layer, part, name] = 0.0 if name == NONE else self.damage(alone)
            if name != NONE:
                advance()
        return found


def sizes(
    config: ModelConfig, dtype_bytes: int, formats: Sequence[str] = ("int8", "int4")
) -> dict[Choice, int]:
    """Bytes of each block in each format, and as it is at `dtype_bytes` an element."""
    mixes = {name: None if name == NONE else Mix.parse(name) for name in (NONE, *formats)}
    return {
        (*block, name): block_bytes(replace(config, quantize=mix), *block, dtype_bytes)
        for block in _blocks(config)
        for name, mix in mixes.items()
    }


def choose(damages: Mapping[Choice, float], num_bytes: Mapping[Choice, int], budget_bytes: int) -> Mix:
    """The mix in which the bytes of a budget save the most damage, as far as damages add up.

    Begins with the smallest format for every block, then gives bytes where each of them saves the most,
    until the next such step would not fit. So a larger budget changes blocks for the better only, and of all
    mixes no larger than the one chosen none has a smaller sum. Raises InputError below the smallest mix.
    """
    chosen, used, steps = _ladder(damages, num_bytes)
    if budget_bytes < used:
        raise InputError(
            f"a budget of {budget_bytes} bytes for the layers: the smallest mix takes {used}, give that"
        )
    for _, more, block, name in steps:
        used += more
        if used > budget_bytes:
            break
        chosen[block] = name
    return mix_of(chosen)


def total(values: Mapping[Choice, float], mix: Mix) -> float:
    """The sum of damages, or of bytes, of all blocks in `mix`."""
    return sum(
        values[layer, part, format_name(mix, layer, part)]
        for layer, part in dict.fromkeys(c[:2] for c in values)
    )


def format_name(mix: Mix, layer: int, part: str) -> str:
    """What a mix gives a block, "none" for as it is."""
    format = mix.format(layer, part)
    return NONE if format is None else format.name


def mix_of(chosen: Mapping[Block, str]) -> Mix:
    """The shortest usual text for a format of each block: one for each part, and ranges of exceptions."""
    items = []
    for part, short in ((part, _short(part)) for part in PARTS):
        names = [chosen[block] for block in sorted(chosen) if block[1] == part]
        usual = max(dict.fromkeys(names), key=names.count)
        items.append(f"{short}={usual}")
        layers = iter(range(len(names)))
        for name, run in groupby(names):
            run = [next(layers) for _ in run]
            span = f"{run[0]}" if len(run) == 1 else f"{run[0]}-{run[-1]}"
            items += [] if name == usual else [f"layers.{span}.{short}={name}"]
    return Mix.parse(",".join(items))


def _ladder(
    damages: Mapping[Choice, float], num_bytes: Mapping[Choice, int]
) -> tuple[dict[Block, str], int, list[Step]]:
    """The smallest format of each block, the bytes of all that, and the steps to better ones, best first."""
    chosen, steps = {}, []
    for block in dict.fromkeys(choice[:2] for choice in damages):
        names = [choice[2] for choice in damages if choice[:2] == block]
        points = sorted((num_bytes[*block, name], damages[*block, name], name) for name in names)
        hull = _hull(points)
        chosen[block] = hull[0][2]
        for (size, damage, _), (larger, less, name) in pairwise(hull):
            steps.append(((damage - less) / (larger - size), larger - size, block, name))
    used = sum(num_bytes[*block, name] for block, name in chosen.items())
    return chosen, used, sorted(steps, key=lambda step: -step[0])  # stable: a block's steps stay in order


def _hull(points: list[tuple[int, float, str]]) -> list[tuple[int, float, str]]:
    """Of (bytes, damage, name), sorted, those from which each further byte saves less than the one before."""
    kept: list[tuple[int, float, str]] = []
    for point in points:
        if kept and point[1] >= kept[-1][1]:
            continue  # more bytes, nothing saved
        while len(kept) > 1 and _saved(kept[-2], kept[-1]) <= _saved(kept[-1], point):
            kept.pop()
        kept.append(point)
    return kept


def _saved(small: tuple[int, float, str], large: tuple[int, float, str]) -> float:
    """Damage saved for each byte from one to the other."""
    return (small[1] - large[1]) / (large[0] - small[0])


@contextmanager
def _changed(llm: LLM, mix: Mix) -> Iterator[None]:
    """The matrices of the blocks that `mix` names are what its formats make of them; put back afterwards."""
    kept = []
    with torch.inference_mode():
        try:
            for layer, part in _blocks(llm.config):
                if (format := mix.format(layer, part)) is None:
                    continue
                module = llm.model.model.layers[layer]
                for name in (name for name in module.shapes[part] if name.endswith("_proj.weight")):
                    weight = module.get_parameter(name)
                    parts = codec.quantise(format, weight, f"layers.{layer}.{name}")
                    kept.append((weight, weight.clone()))
                    weight.copy_(codec.dequantise(format, parts, weight.dtype))
            yield
        finally:
            for weight, before in kept:
                weight.copy_(before)


def _blocks(config: ModelConfig) -> list[Block]:
    return list(product(range(config.num_hidden_layers), PARTS))


def _short(part: str) -> str:
    """ "attn" for "attention": as the option says it."""
    return next(short for short, name in SHORT.items() if name == part)
