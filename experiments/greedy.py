"""Greedy answers of two engines beside each other: equal, apart at a tie, or wrong.

Float rounding differs between two correct programs, so where the reference's two best logits are closer than
`TIE` either token is right. From there on the answers are about different texts; ours is then checked against
the reference's logits for our own text, token by token.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from experiments.reference import Greedy

TIE = 1e-4  # in logits


@dataclass(frozen=True)
class Comparison:
    """`position`: first token that differs, or None. `margin`: the reference's top-2 margin there."""

    right: bool
    position: int | None = None
    margin: float | None = None
    note: str = ""

    @property
    def tie(self) -> bool:
        """Right, though not equal."""
        return self.right and self.position is not None


def compare(
    prompt: list[int],
    ours: list[int],
    reference: Greedy,
    logits: Callable[[list[int]], torch.Tensor],
    max_tokens: int,
    eos: tuple[int, ...] = (),
) -> Comparison:
    """Judge our answer to `prompt`; `logits` gives the reference's teacher-forced [T, vocab]."""
    position = first_difference(ours, reference.token_ids)
    if position is None:
        return Comparison(True)
    if position >= min(len(ours), len(reference.token_ids)):
        return Comparison(False, position, None, f"{len(ours)} tokens, not {len(reference.token_ids)}")
    margin = reference.margins[position]
    if margin > TIE:
        return Comparison(False, position, margin, f"{ours[position]}, not {reference.token_ids[position]}")
    if not _ends_rightly(ours, max_tokens, eos):
        return Comparison(False, position, margin, f"ends after {len(ours)} tokens")
    gap = largest_gap(prompt, ours, logits, position)
    return Comparison(gap <= TIE, position, margin, f"after the tie {gap:.1e} below the reference's best")


def first_difference(a: list[int], b: list[int]) -> int | None:
    """Index of the first token that differs or is there only once; None for equal lists."""
    if a == b:
        return None
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def largest_gap(
    prompt: list[int], answer: list[int], logits: Callable[[list[int]], torch.Tensor], start: int = 0
) -> float:
    """How far the answer's worst choice from `start` on is below the best logit for the same text."""
    chosen = torch.tensor(answer[start:])
    rows = logits(prompt + answer[:-1])[len(prompt) - 1 + start :]
    return (rows.max(-1).values - rows.gather(1, chosen[:, None])[:, 0]).max().item()


def _ends_rightly(answer: list[int], max_tokens: int, eos: tuple[int, ...]) -> bool:
    if any(token in eos for token in answer[:-1]):
        return False
    return len(answer) == max_tokens or answer[-1] in eos
