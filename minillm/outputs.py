"""What a request returns."""

from dataclasses import dataclass, field


@dataclass
class Metrics:
    """Times of one request, in seconds of wall clock from the call with token ids."""

    ttft_s: float | None = None  # time to first token: known on the host; None if there was none
    total_s: float = 0.0  # until this request's last token
    num_generated: int = 0
    peak_memory_bytes: int | None = None  # most device memory taken during the call; None: nothing counts it

    @property
    def prefill_latency_s(self) -> float | None:
        """The same as `ttft_s`: the prompt is read in one go and ends with the first token."""
        return self.ttft_s

    @property
    def decode_tokens_per_s(self) -> float | None:
        """(generated − 1) / (total − TTFT); None below two tokens."""
        if self.ttft_s is None or self.num_generated < 2:
            return None
        return (self.num_generated - 1) / (self.total_s - self.ttft_s)

    def as_dict(self) -> dict[str, float | int | None]:
        """For JSON; rates that are undefined are None."""
        return {
            "ttft_s": self.ttft_s,
            "prefill_latency_s": self.prefill_latency_s,
            "decode_tokens_per_s": self.decode_tokens_per_s,
            "total_s": self.total_s,
            "peak_memory_bytes": self.peak_memory_bytes,
            "num_generated": self.num_generated,
        }


@dataclass
class RequestOutput:
    """A finished request. `token_ids` include the token that ended it; `text` does not show it."""

    prompt_token_ids: list[int]
    token_ids: list[int] = field(default_factory=list)
    text: str | None = None  # None without a tokenizer
    finish_reason: str = "abort"  # stop: end token or stop string; length: a limit; abort: cut short
    metrics: Metrics = field(default_factory=Metrics)


@dataclass(frozen=True)
class StreamChunk:
    """New text and tokens of one request; `output` is set on the last chunk only."""

    text: str
    token_ids: list[int]
    output: RequestOutput | None = None
