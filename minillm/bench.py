"""How fast an LLM is here: made-up prompts, runs to warm up, a run that counts."""

from dataclasses import asdict, dataclass
from statistics import mean

from minillm import LLM, SamplingParams
from minillm.checks import shown, whole
from minillm.errors import InputError

WARM_UP = 3  # tokens
UNCOUNTED = 2  # runs: the first one compiles what there is to compile, the second one captures graphs
MOST_REQUESTS = 4096  # a batch; prompts are lists of Python, 8 bytes a token and more


@dataclass(frozen=True)
class Bench:
    """One measured run; rates are tokens a second of decoding, as `Metrics` defines them."""

    prompt_tokens: int
    new_tokens: int
    batch: int
    ttft_s: float  # of the last request of the batch: prompts are read one after the other
    tokens_per_s: float | None  # mean of the requests
    batch_tokens_per_s: float | None  # their sum
    peak_memory_bytes: int | None
    predicted_tokens_per_s: float | None

    def as_dict(self) -> dict[str, float | int | None]:
        """For JSON."""
        return asdict(self)


def bench(llm: LLM, prompt_tokens: int = 128, new_tokens: int = 64, batch: int = 1) -> Bench:
    """Measure `batch` requests at once, greedy, past the end token; InputError when they do not fit."""
    check_lengths(llm, prompt_tokens, new_tokens)
    check_batch(batch)
    prompts = [made_up_prompt(prompt_tokens, llm.config.vocab_size, number) for number in range(batch)]
    for _ in range(UNCOUNTED):
        llm.generate(prompts, SamplingParams(max_tokens=min(WARM_UP, new_tokens), ignore_eos=True))
    runs = [
        out.metrics for out in llm.generate(prompts, SamplingParams(max_tokens=new_tokens, ignore_eos=True))
    ]
    speeds = [run.decode_tokens_per_s for run in runs if run.decode_tokens_per_s is not None]
    return Bench(
        prompt_tokens=prompt_tokens,
        new_tokens=new_tokens,
        batch=batch,
        ttft_s=max(run.ttft_s for run in runs),
        tokens_per_s=mean(speeds) if speeds else None,
        batch_tokens_per_s=sum(speeds) if speeds else None,
        peak_memory_bytes=runs[0].peak_memory_bytes,
        predicted_tokens_per_s=llm.decision.tokens_per_s,
    )


def check_batch(batch: int) -> None:
    """Raise InputError for a number of requests that nobody would wait for, or none."""
    whole("batch", batch, 1, MOST_REQUESTS)


def check_lengths(llm: LLM, prompt_tokens: int, new_tokens: int) -> None:
    """Raise InputError for a request that is empty or beyond the context."""
    whole("prompt_tokens", prompt_tokens, 1)
    whole("new_tokens", new_tokens, 1)
    if prompt_tokens + new_tokens - 1 > llm.max_model_len:
        raise InputError(
            f"{shown(prompt_tokens)} tokens of prompt and {shown(new_tokens)} new ones are more than the "
            f"context of {llm.max_model_len}: shorten one of them"
        )


def made_up_prompt(tokens: int, vocab_size: int, number: int = 0) -> list[int]:
    """Ids that hardly repeat, the same in every run."""
    return [(7919 * (index + 1) + 104729 * number) % vocab_size for index in range(tokens)]
