"""One request under way: its tokens, its sampler, its text, and when it ends."""

import time

import torch

from minillm.outputs import Metrics, RequestOutput
from minillm.sampler import Sampler
from minillm.sampling_params import SamplingParams
from minillm.text_stream import TextStream


class Sequence:
    """Everything that belongs to one request; knows nothing of the model or the cache."""

    def __init__(
        self,
        prompt_token_ids: list[int],
        params: SamplingParams,
        *,
        seed: int,
        end_ids: frozenset[int],
        max_model_len: int,
        tokenizer=None,
    ):
        self.params = params
        self.prompt_token_ids = prompt_token_ids
        self.token_ids: list[int] = []
        self.sampler = Sampler(params, seed)
        self.end_ids = end_ids.union(params.stop_token_ids)
        self.stream = TextStream(tokenizer, params.stop) if tokenizer else None
        # The last new token is never fed back: a sequence may be one token longer than what it stores.
        self.max_new = min(params.max_tokens, max_model_len - len(prompt_token_ids) + 1)
        self.finish_reason: str | None = None
        self.delta = ""  # text that the last token made showable
        self.started = time.perf_counter()
        self.first_token_at: float | None = None
        self.last_token_at = self.started

    @property
    def capacity(self) -> int:
        """Cache slots it can need."""
        return len(self.prompt_token_ids) + self.max_new - 1

    @property
    def stored(self) -> int:
        """Tokens in the cache before the next step: all but the newest."""
        return len(self.prompt_token_ids) + len(self.token_ids) - 1

    @property
    def goes_on(self) -> bool:
        """Whether it will take the best token next, and then one more, unless that one is an end."""
        return self.sampler.is_plain_greedy and len(self.token_ids) + 2 <= self.max_new

    def choose(self, logits: torch.Tensor) -> int:
        """The next token from `logits` [vocab]."""
        penalised = self.params.repetition_penalty != 1.0
        return self.sampler.choose(logits, self.prompt_token_ids + self.token_ids if penalised else [])

    def append(self, token_id: int) -> None:
        """Take a new token; sets `delta`, and `finish_reason` when it was the last one."""
        self.last_token_at = time.perf_counter()
        self.first_token_at = self.first_token_at or self.last_token_at
        self.token_ids.append(token_id)
        ended = token_id in self.end_ids
        # An end token has no text of its own, and a stop id's text is not part of the answer.
        self.delta = self.stream.push(token_id) if self.stream and not ended else ""
        if ended or (self.stream and self.stream.stopped):
            self.finish_reason = "stop"
        elif len(self.token_ids) >= self.max_new:
            self.finish_reason = "length"
        if self.finish_reason and self.stream:
            self.delta += self.stream.finish()

    def output(self, peak_memory_bytes: int | None) -> RequestOutput:
        """The result so far; `abort` if it has not ended."""
        if self.stream and not self.finish_reason:
            self.stream.finish()
        return RequestOutput(
            prompt_token_ids=self.prompt_token_ids,
            token_ids=self.token_ids,
            text=self.stream.text if self.stream else None,
            finish_reason=self.finish_reason or "abort",
            metrics=self._metrics(peak_memory_bytes),
        )

    def _metrics(self, peak_memory_bytes: int | None) -> Metrics:
        first = self.first_token_at
        return Metrics(
            ttft_s=None if first is None else first - self.started,
            total_s=self.last_token_at - self.started,
            num_generated=len(self.token_ids),
            peak_memory_bytes=peak_memory_bytes,
        )
