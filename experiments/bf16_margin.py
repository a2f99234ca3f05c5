"""bfloat16 against the reference in bfloat16 and float32: every choice within rounding, no larger error.

Rounding moves logits, so bfloat16 tokens cannot be compared one by one. The margin rule asks that each
chosen token could have been the best one: its float32 logit >= top - 2 * max |bfloat16 - float32| at its
position. The error rule asks that our logits are as near to float32 as the reference's bfloat16 logits.
"""

import math

import torch

from experiments import random_reference
from experiments.results import check
from minillm import LLM, SamplingParams

ERROR_GOAL = 1.05  # our RMS logit error over the reference's
CHUNK = 64  # positions whose logits exist at once: 64 * 151,936 float32 are 39 MB


class Trio:
    """Our engine and the reference in bfloat16 and in float32, with the same weights."""

    def __init__(self, name: str, device: str):
        torch.backends.cuda.matmul.allow_tf32 = False
        self.llm = LLM(name, device=device, dtype="bfloat16")
        self.rounded = random_reference.make(name, torch.bfloat16, device)
        self.exact = random_reference.widened(self.rounded)

    def measure(self, prompt: list[int], tokens: int) -> dict:
        """The row of one prompt: our greedy answer, how it keeps the margin rule, summed squared errors."""
        answer = self.llm.generate(prompt, SamplingParams(max_tokens=tokens, ignore_eos=True))[0].token_ids
        figures = self._teacher_forced(prompt + answer)
        chosen, top, rounding = figures.pop("positions")[:, len(prompt) - 1 :]
        # Above 0: the choice is further from the best than rounding in the reference explains.
        excess = top - 2 * rounding - chosen
        return {
            "prompt_tokens": len(prompt),
            "tokens": len(answer),
            "outside_margin": len(answer) - int((excess <= 0).sum()),
            "largest_excess": excess.max().item(),
            "not_float32_best": int((chosen < top).sum()),
            **figures,
        }

    @torch.inference_mode()
    def _teacher_forced(self, text: list[int]) -> dict:
        """Squared errors over all positions of `text` but the last, and what the margin rule needs of each.

        `positions` [3, T]: float32 logit of the token that follows, the best float32 logit, and the
        largest rounding of a logit.
        """
        ids = torch.tensor([text], device=self.exact.device)
        exact_hidden = self.exact.model(ids[:, :-1], use_cache=False).last_hidden_state[0]
        rounded_hidden = self.rounded.model(ids[:, :-1], use_cache=False).last_hidden_state[0]
        ours = self.llm.logits(text[:-1])
        positions, errors = [], torch.zeros(2, dtype=torch.float64, device=self.exact.device)
        for begin in range(0, len(ours), CHUNK):
            part = slice(begin, begin + CHUNK)
            exact = self.exact.lm_head(exact_hidden[part])
            rounding = self.rounded.lm_head(rounded_hidden[part]).float() - exact
            error = ours[part].to(exact.device) - exact
            errors += torch.stack([e.square().sum(dtype=torch.float64) for e in (error, rounding)])
            chosen = exact.gather(1, ids[0, 1:][part, None])[:, 0]
            positions.append(torch.stack((chosen, exact.amax(-1), rounding.abs().amax(-1))))
        return {
            "positions": torch.cat(positions, 1),
            "logits": ours.numel(),
            "squared_error": errors[0].item(),
            "squared_error_reference": errors[1].item(),
        }

    def close(self) -> None:
        """Free all three."""
        self.llm.close()
        del self.rounded, self.exact
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def checks(name: str, rows: list[dict]) -> list[dict]:
    """Share of choices inside the margin, and our RMS logit error over the reference's."""
    tokens = sum(row["tokens"] for row in rows)
    outside = sum(row["outside_margin"] for row in rows)
    return [
        check(f"bf16 {name}: prompts", len(rows)),
        check(f"bf16 {name}: share of tokens inside the margin", 1 - outside / tokens, 1.0),
        check(f"bf16 {name}: RMS logit error over the reference's", error_ratio(rows), ERROR_GOAL, "lower"),
        check(f"bf16 {name}: RMS logit error of the reference", rms(rows, "squared_error_reference")),
    ]


def error_ratio(rows: list[dict]) -> float | None:
    """Our RMS error over the reference's, None if the reference has none."""
    reference = rms(rows, "squared_error_reference")
    return rms(rows, "squared_error") / reference if reference else None


def rms(rows: list[dict], key: str) -> float:
    """Root of the mean square over every logit of every row."""
    return math.sqrt(sum(row[key] for row in rows) / sum(row["logits"] for row in rows))
