"""From logits to the next token, in Hugging Face's order of filters.

repetition penalty → temperature → top-k → top-p → min-p → softmax → one draw. Each request draws from
its own generator on the CPU, so its tokens depend neither on its neighbours nor on the device.
"""

import torch
import torch.nn.functional as F

from minillm.sampling_params import SamplingParams

NEVER = float("-inf")
COLD = 1e-6  # below this the best logit is drawn anyway, and the division could overflow float32


class Sampler:
    """One request's chooser."""

    def __init__(self, params: SamplingParams, seed: int):
        self.params = params
        self.generator = torch.Generator().manual_seed(seed if params.seed is None else params.seed)

    @property
    def is_plain_greedy(self) -> bool:
        """Whether the token is simply the best logit, so that no logits need to leave the device."""
        return self.params.temperature == 0 and self.params.repetition_penalty == 1.0

    def choose(self, logits: torch.Tensor, seen: list[int]) -> int:
        """The next token after `seen` (prompt and generated) from one position's `logits` [vocab]."""
        logits = penalise(logits.float().cpu(), seen, self.params.repetition_penalty)
        if self.params.temperature < COLD:
            return int(logits.argmax())
        logits = filter_logits(logits / self.params.temperature, self.params)
        probabilities = F.softmax(logits, -1)
        if probabilities[0].isnan():  # one NaN logit makes all of them NaN; the engine has warned
            return int(logits.argmax())
        return int(torch.multinomial(probabilities, 1, generator=self.generator))


def penalise(logits: torch.Tensor, seen: list[int], penalty: float) -> torch.Tensor:
    """Divide positive logits of seen tokens by `penalty`, multiply negative ones (arXiv 1909.05858)."""
    if penalty == 1.0:
        return logits
    ids = torch.tensor(sorted(set(seen)))
    old = logits[ids]
    return logits.index_copy(0, ids, torch.where(old > 0, old / penalty, old * penalty))


def filter_logits(logits: torch.Tensor, params: SamplingParams) -> torch.Tensor:
    """Set what top-k, top-p and min-p exclude to −inf; `logits` [vocab] already have the temperature."""
    if 0 < params.top_k < len(logits):
        logits = logits.masked_fill(logits < logits.topk(params.top_k).values[-1], NEVER)
    if params.top_p < 1.0:
        # From the least likely up: what sums to at most 1 − p goes; the best one always stays.
        ascending, order = logits.sort()
        drop = F.softmax(ascending, -1).cumsum(-1) <= 1 - params.top_p
        drop[-1] = False
        logits = logits.index_fill(0, order[drop], NEVER)
    if params.min_p > 0.0:
        probabilities = F.softmax(logits, -1)
        logits = logits.masked_fill(probabilities < params.min_p * probabilities.max(), NEVER)
    return logits
