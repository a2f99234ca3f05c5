"""What engines are asked side by side, and the row that an answer comes to; the same for ours and peers."""

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from experiments.prompt_files import read_lines

SHARED = 20  # prompts of data/prompts.jsonl
WARM_TOKENS = 3  # of an answer that is not measured
UNCOUNTED = 2  # of those: at first a new length can want new kernels, then a graph
PREFILLS = 5  # repeats of a prompt that is only read
PEAK_TOKENS = 2  # a prefill and a decode step: nothing later takes more memory


@dataclass(frozen=True)
class Request:
    """One prompt and how often it is answered; `key` is its row's."""

    key: str
    prompt: list[int]
    new_tokens: int
    question_id: int | None = None
    repeats: int = 1
    whole_context: bool = False  # with a KV cache of all the tokens that the engine was made for


@dataclass(frozen=True)
class Answer:
    """Seconds from the call with token ids; most bytes of GPU memory in use, and taken by the allocator."""

    token_ids: list[int]
    ttft_s: float
    total_s: float
    peak_bytes: int | None = None
    reserved_bytes: int | None = None
    graph_replays: int | None = None  # decode steps that were replays of a CUDA graph, where that is counted

    @property
    def tokens_per_s(self) -> float | None:
        """Of decoding, from the second token on; None below two tokens."""
        made = len(self.token_ids)
        return (made - 1) / (self.total_s - self.ttft_s) if made > 1 else None


# ---- asking ----


def generations(start: str, vocab_size: int, indices: list[int], new_tokens: int) -> list[Request]:
    """The shared prompts of these indices; keys are `start`/index. Smaller vocabularies wrap the ids."""
    lines = read_lines("prompts.jsonl")
    return [
        Request(
            key=f"{start}/{index}",
            prompt=[each % vocab_size for each in lines[index]["token_ids"]],
            new_tokens=new_tokens,
            question_id=lines[index]["question_id"],
        )
        for index in indices
    ]


def prefills(start: str, vocab_size: int, lengths: list[int]) -> list[Request]:
    """Prompts of so many tokens, each read several times; keys are `start`/prefill/tokens."""
    return [
        Request(f"{start}/prefill/{length}", joined(vocab_size, length), 1, repeats=PREFILLS)
        for length in lengths
    ]


def peak(start: str, vocab_size: int, tokens: int) -> Request:
    """A long prompt with room for the whole context: most memory that any request takes."""
    return Request(f"{start}/peak", joined(vocab_size, tokens), PEAK_TOKENS, whole_context=True)


def joined(vocab_size: int, tokens: int) -> list[int]:
    """The first token ids of all shared prompts in a row, over and over."""
    ids = [each for line in read_lines("prompts.jsonl") for each in line["token_ids"]]
    return [each % vocab_size for each in (ids * (tokens // len(ids) + 1))[:tokens]]


def spread(count: int, of: int = SHARED) -> list[int]:
    """`count` of the indices 0 … of−1, evenly spread: prompts get longer with their index."""
    if count == 1:
        return [of // 2]
    return [round(number * (of - 1) / (min(count, of) - 1)) for number in range(min(count, of))]


# ---- measuring ----


def measured(request: Request, answer: Callable[[Request], Answer]) -> dict:
    """The row of a request, after short answers that are not counted."""
    began = time.perf_counter()
    for _ in range(UNCOUNTED):
        answer(shortened(request))
    answers = [answer(request) for _ in range(request.repeats)]
    for each in answers:
        if len(each.token_ids) != request.new_tokens:
            raise RuntimeError(f"{request.key}: {len(each.token_ids)} tokens, asked for {request.new_tokens}")
    return {"key": request.key, **figures(request, answers), "seconds": time.perf_counter() - began}


def shortened(request: Request) -> Request:
    """The same prompt with few new tokens."""
    few = min(WARM_TOKENS, request.new_tokens)
    return Request(request.key, request.prompt, few, whole_context=request.whole_context)


def figures(request: Request, answers: list[Answer]) -> dict:
    """Median times of the repeats, the most memory, and a mark of the last answer's tokens."""
    speeds = [each.tokens_per_s for each in answers if each.tokens_per_s is not None]
    found = {
        "question_id": request.question_id,
        "prompt_tokens": len(request.prompt),
        "new_tokens": request.new_tokens,
        "ttft_s": median(each.ttft_s for each in answers),
        "tokens_per_s": median(speeds) if speeds else None,
        "peak_bytes": most(each.peak_bytes for each in answers),
        "reserved_bytes": most(each.reserved_bytes for each in answers),
        "answer": hashlib.sha256(str(answers[-1].token_ids).encode()).hexdigest()[:16],
    }
    if answers[-1].graph_replays is not None:
        found["graph_replays"] = answers[-1].graph_replays
    if request.repeats > 1:
        found |= {"ttft_best_s": min(each.ttft_s for each in answers), "repeats": request.repeats}
    return found


def most(values) -> int | None:
    """The largest of what is known; None where nothing is."""
    return max((value for value in values if value is not None), default=None)
