"""Notebook 06: first differences, the margin rule, rounding or bug, and an engine to repair."""

from collections.abc import Callable

import torch

from checks.broken_engine import Engine
from checks.engine_check import first_wrong_part
from checks.exercise import Exercise
from checks.repaired_engine import Repaired, attended, pairs_of_neighbours, rotated, swapped_heads

# ---- 1: the first difference ----


def _first(ours: list[int], theirs: list[int]) -> int | None:
    for index, pair in enumerate(zip(ours, theirs, strict=False)):
        if pair[0] != pair[1]:
            return index
    return None if len(ours) == len(theirs) else min(len(ours), len(theirs))


def _blind_to_length(ours: list[int], theirs: list[int]) -> int | None:
    return next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), None)


def _length_for_equal(ours: list[int], theirs: list[int]) -> int:
    first = _first(ours, theirs)
    return len(ours) if first is None else first


def _minus_one(ours: list[int], theirs: list[int]) -> int:
    first = _first(ours, theirs)
    return -1 if first is None else first


def _one_based(ours: list[int], theirs: list[int]) -> int | None:
    first = _first(ours, theirs)
    return None if first is None else first + 1


def _zero_lost(ours: list[int], theirs: list[int]) -> int | None:
    return _first(ours, theirs) or None


def _last(ours: list[int], theirs: list[int]) -> int | None:
    different = [i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b]
    return different[-1] if different else _first(ours, theirs)


def _longer(ours: list[int], theirs: list[int]) -> int | None:
    first = _blind_to_length(ours, theirs)
    return max(len(ours), len(theirs)) if first is None and ours != theirs else first


def _last_of_shorter(ours: list[int], theirs: list[int]) -> int | None:
    first = _blind_to_length(ours, theirs)
    return min(len(ours), len(theirs)) - 1 if first is None and ours != theirs else first


def _over_ours(ours: list[int], theirs: list[int]) -> int | None:
    return next((index for index in range(len(ours)) if ours[index] != theirs[index]), None)


def _over_ours_then_length(ours: list[int], theirs: list[int]) -> int | None:
    first = _over_ours(ours, theirs)
    return min(len(ours), len(theirs)) if first is None and ours != theirs else first


def _agreeing(ours: list[int], theirs: list[int]) -> int:
    return sum(a == b for a, b in zip(ours, theirs, strict=False))


def _how_many(ours: list[int], theirs: list[int]) -> int | None:
    same = sum(a == b for a, b in zip(ours, theirs, strict=False))
    return None if ours == theirs else same


first_difference = Exercise(
    "first difference",
    _first,
    (
        ([4, 5, 6], [4, 5, 6]),
        ([4, 5, 6, 7], [4, 9, 6, 8]),
        ([3, 5], [4, 5]),
        ([4, 5], [4, 5, 6]),
        ([4, 5, 6, 7], [4, 5, 6]),
        ([], [4]),
        ([], []),
    ),
    {
        "One list can be the beginning of the other. That is a difference: one engine stopped too early.": (
            _blind_to_length
        ),
        "Equal lists have no difference: return None. A number would look like a flip at the end.": (
            _length_for_equal
        ),
        "Equal lists have no difference: return None. In Python -1 is a place: the last one.": _minus_one,
        "Python counts from 0: return the index of the first token that differs.": _one_based,
        "A difference at index 0 got lost: 0 counts as False in Python, so do not use `or` or `if index`.": (
            _zero_lost
        ),
        "That is the last difference. After the first one the texts differ and prove nothing any more.": (
            _last
        ),
        "That counts the tokens that agree. After a flip some agree by chance; the first index counts.": (
            _how_many
        ),
        "That counts the tokens that agree, in equal lists, too. Asked for is the first place that differs, "
        "and None where there is none.": _agreeing,
        "The loop runs over the indices of `ours`: where `theirs` is shorter it leaves the list, and where "
        "`theirs` is longer it misses the difference.": _over_ours,
        "The loop runs over the indices of `ours`: where `theirs` is shorter it leaves the list.": (
            _over_ours_then_length
        ),
        "Where one list is the beginning of the other, the difference is where the shorter one ends, "
        "not the longer.": _longer,
        "Where one list is the beginning of the other, its last token still agrees: the difference comes "
        "one later.": _last_of_shorter,
    },
)

# ---- 2: the margin rule ----


def _outside(exact: torch.Tensor, rounded: torch.Tensor, chosen: torch.Tensor, factor: float = 2.0):
    error = (rounded - exact).abs().amax(-1)
    return _picked(exact, chosen) < exact.amax(-1) - factor * error


def _picked(logits: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
    return logits.gather(1, chosen[:, None])[:, 0]


def _error_of_chosen(exact: torch.Tensor, rounded: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
    error = (_picked(rounded, chosen) - _picked(exact, chosen)).abs()
    return _picked(exact, chosen) < exact.amax(-1) - 2 * error


def _without_sign(exact: torch.Tensor, rounded: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
    return _picked(exact, chosen) < exact.amax(-1) - 2 * (rounded - exact).amax(-1)


def _one_error(exact: torch.Tensor, rounded: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
    return _picked(exact, chosen) < exact.amax(-1) - 2 * (rounded - exact).abs().max()


def _mean_error(exact: torch.Tensor, rounded: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
    return _picked(exact, chosen) < exact.amax(-1) - 2 * (rounded - exact).abs().mean(-1)


def _in_rounded(exact: torch.Tensor, rounded: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
    error = (rounded - exact).abs().amax(-1)
    return _picked(rounded, chosen) < rounded.amax(-1) - 2 * error


def _wrong_axis(exact: torch.Tensor, rounded: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
    return _picked(exact, chosen) < exact.amax(-1) - 2 * (rounded - exact).abs().amax(0)[: len(exact)]


def _margin_case(seed: int, T: int, V: int, scale: float) -> tuple[torch.Tensor, ...]:
    """Logits with small and large errors, and choices that are often not the best."""
    generator = torch.Generator().manual_seed(seed)
    exact = torch.randn(T, V, generator=generator)
    noise = torch.randn(T, V, generator=generator) * scale * (1 + torch.arange(T)[:, None] % 3)
    chosen = exact.topk(4).indices.gather(1, torch.randint(4, (T, 1), generator=generator))[:, 0]
    return exact, exact + noise, chosen


_TINY_CASE = (  # the numbers of the text: by hand, only the second choice is outside
    torch.tensor([[2.0, 1.8, 0.5], [2.0, 1.8, 0.5]]),
    torch.tensor([[1.9, 1.95, 0.5], [1.9, 1.95, 0.5]]),
    torch.tensor([1, 2]),
)

outside_margin = Exercise(
    "the margin rule",
    _outside,
    (_TINY_CASE, _margin_case(1, 40, 50, 0.12), _margin_case(2, 64, 90, 0.05)),
    {
        "Once the error is not enough: the best logit may fall by it and the other may rise by it.": (
            lambda exact, rounded, chosen: _outside(exact, rounded, chosen, 1.0)
        ),
        "The error of the chosen logit is not enough: the best one was rounded, too. Take the largest.": (
            _error_of_chosen
        ),
        "Rounding goes up and down. Without abs() an error downwards counts as none.": _without_sign,
        "Each position has its own error. The largest of all would excuse bugs elsewhere.": _one_error,
        "The mean error is not a bound: the two logits in question may have the largest errors.": _mean_error,
        "Compare the float32 logits: the rounded ones are what is being judged.": _in_rounded,
        "The error is largest over the vocabulary of one position, not over the positions of one token.": (
            _wrong_axis
        ),
        "That marks the choices that keep the rule; asked for are those that break it.": (
            lambda exact, rounded, chosen: ~_outside(exact, rounded, chosen)
        ),
        "One truth value for each place is asked for, not how many there are.": (
            lambda exact, rounded, chosen: int(_outside(exact, rounded, chosen).sum())
        ),
        "Not being the best float32 token is no crime in bfloat16: the rule allows what rounding explains.": (
            lambda exact, rounded, chosen: _outside(exact, rounded, chosen, 0.0)
        ),
    },
)

# ---- 3: rounding or bug ----

ANSWERS = {"a": "rounding", "b": "bug", "c": "rounding", "d": "rounding", "e": "bug"}
OTHER = {"rounding": "bug", "bug": "rounding"}


def _first_wrong_letter(answer: Callable) -> str:
    given = answer()
    if not isinstance(given, dict):
        raise TypeError('return a dictionary such as {"a": "bug", "b": "rounding", ...}')
    unknown = [word for word in given.values() if word not in OTHER]
    if unknown or given.keys() != ANSWERS.keys():
        raise ValueError('give one of "rounding" and "bug" for each of a, b, c, d, e')
    return next((letter for letter in ANSWERS if given[letter] != ANSWERS[letter]), "none")


def _with_wrong(letter: str) -> Callable:
    return lambda: ANSWERS | {letter: OTHER[ANSWERS[letter]]}


rounding_or_bug = Exercise(
    "rounding or bug",
    lambda: ANSWERS,
    ((),),
    {
        "(a) 0.01 is less than twice 0.02. Rounding explains it.": _with_wrong("a"),
        "(b) In float32 the error is about 0.00001. It cannot bridge 0.3.": _with_wrong("b"),
        "(c) 0.10 is more than 0.06, but two logits were rounded: compare with twice the error.": _with_wrong(
            "c"
        ),
        "(d) After the first flip two different texts are continued. Only the first flip tells something.": (
            _with_wrong("d")
        ),
        "(e) Equal tokens are a weak test. 0.005 is hundreds of times what float32 rounds away.": _with_wrong(
            "e"
        ),
    },
    run=_first_wrong_letter,
)

# ---- 4: repair the engine ----


def _spoilt(**methods: Callable) -> Callable:
    """An answer like the solution, with other methods."""
    return lambda: type("Spoilt", (Repaired,), methods)


repair = Exercise(
    "the repaired engine",
    lambda: Repaired,
    ((),),
    {
        "`norm` was right in the colleague's engine; yours is not. It needs no repair.": _spoilt(
            norm=lambda self, x, weight: x / (x.square().mean(-1, keepdim=True).sqrt() + 1e-3) * weight
        ),
        "`rotate` must give back the shape that it gets.": _spoilt(rotate=lambda self, x: x[:, 1:]),
        "`rotate` turns the first token. Position 0 has the angle 0: that token must stay as it is.": _spoilt(
            rotate=lambda self, x: rotated(x, self.config.rope.rope_theta, start=1)
        ),
        "`rotate` changes the length of a pair (x[i], x[i + D/2]): other pairs, or no rotation.": (
            _spoilt(rotate=pairs_of_neighbours)
        ),
        "`rotate` turns by wrong angles: position 0 is right and the pairs are right. What decides the "
        "speed of a pair, and has every Qwen3 the same?": _spoilt(rotate=Engine.rotate),
        "`attend` must give [H, T, D], the shape of q.": _spoilt(attend=lambda self, q, k, v: q.flatten(1)),
        "`attend` gives a query head a wrong key/value head: query heads 0 to H/K - 1 share the first.": (
            _spoilt(attend=swapped_heads)
        ),
        "`attend` sees wrong tokens: each may look at itself and at what came before, at nothing later.": (
            _spoilt(attend=lambda self, q, k, v: attended(q, k, v, self.config.head_dim**-0.5, hide=2))
        ),
        "`attend` has the right heads and the right mask, so look at the scale: over how many numbers "
        "does a product q·k add up?": _spoilt(attend=Engine.attend),
        "`mlp` is still wrong: which function does the S in SwiGLU stand for, and which of the two products "
        "goes through it?": _spoilt(mlp=Engine.mlp),
        "Each part is right by itself, yet the logits are wrong: look at how `layer` joins them.": (
            _spoilt(layer=lambda self, index, hidden: Repaired.layer(self, index, hidden) - hidden)
        ),
    },
    run=first_wrong_part,
)
