"""From logits to the next token, in Hugging Face's order of filters.

repetition penalty → temperature → top-k → top-p → min-p → softmax → one draw. Each request draws from
its own generator on the CPU, so its tokens depend neither on its neighbours nor on the device.
"""

import torch
import torch.nn.functional as F

from minillm.sampling_params import SamplingParams

COLD = 1e-6  # below this the best logit is drawn anyway, and the division could overflow float32
FEW = 1024  # candidates that nearly always hold a nucleus: to sort a whole vocabulary takes ten times as long


class Sampler:
    """One request's chooser."""

    def __init__(self, params: SamplingParams, seed: int):
        self.params = params
        self.generator = torch.Generator("cpu").manual_seed(seed if params.seed is None else params.seed)

    @property
    def is_plain_greedy(self) -> bool:
        """Whether the token is simply the best logit, so that no logits need to leave the device."""
        return self.params.temperature == 0 and self.params.repetition_penalty == 1.0

    def choose(self, logits: torch.Tensor, seen: list[int]) -> int:
        """The next token after `seen` (prompt and generated) from one position's `logits` [vocab]."""
        logits = penalise(logits.float(), seen, self.params.repetition_penalty)
        if self.params.temperature < COLD:
            return int(logits.argmax())
        kept, ids = candidates(logits / self.params.temperature, self.params)
        place = self._draw(F.softmax(kept.cpu(), -1))
        return place if ids is None else int(ids[place])

    def _draw(self, probabilities: torch.Tensor) -> int:
        """An index of `probabilities` [n]: where their running sum passes one random number."""
        sums = probabilities.double().cumsum(-1)
        at = torch.rand((), dtype=torch.float64, device="cpu", generator=self.generator) * sums[-1]
        # NaN logits make every sum NaN; the engine has warned, and any answer is as good as another.
        return min(int(torch.searchsorted(sums, at, right=True)), len(sums) - 1)


def penalise(logits: torch.Tensor, seen: list[int], penalty: float) -> torch.Tensor:
    """Divide positive logits of seen tokens by `penalty`, multiply negative ones (arXiv 1909.05858)."""
    if penalty == 1.0:
        return logits
    ids = torch.tensor(sorted(set(seen)), device=logits.device)
    old = logits[ids]
    return logits.index_copy(0, ids, torch.where(old > 0, old / penalty, old * penalty))


def candidates(logits: torch.Tensor, params: SamplingParams) -> tuple[torch.Tensor, torch.Tensor | None]:
    """What top-k, top-p and min-p leave of `logits` [vocab] (temperature applied): logits and token ids.

    Best first; ids None means all of them in place. Of equal logits at the border of top-k some are dropped.
    """
    if 0 < params.top_k < len(logits):
        best, ids = logits.topk(params.top_k)
        count = _kept(F.softmax(best, -1), params)
    elif params.top_p == 1.0 and params.min_p == 0.0:
        return logits, None
    else:
        total = logits.logsumexp(-1)
        best, ids = logits.topk(min(FEW, len(logits)))
        count = _kept((best - total).exp(), params)
        if count == len(best) < len(logits):  # all of them are kept, so there may be more
            best, ids = logits.sort(descending=True)
            count = _kept((best - total).exp(), params)
    return best[:count], ids[:count]


def _kept(probabilities: torch.Tensor, params: SamplingParams) -> int:
    """How many of `probabilities` (best first) top-p and min-p keep; at least one."""
    before = probabilities.cumsum(-1) - probabilities
    keep = (before < params.top_p) & (probabilities >= params.min_p * probabilities[0])
    return max(1, int(keep.sum()))
