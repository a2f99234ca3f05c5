"""Our engine beside vLLM 0.24.0: resident, and with layers streamed, the same prompts on the same machine.

    python -m experiments.vllm_compare      # data/results/vllm__<machine>.json

Resident models (`--models`): 20 prompts × 256 new tokens, prefills of three lengths, most memory. One model
offloaded (`--model`), 12 layers resident: 3 prompts × 64 tokens of ours, with one slot and with the memory of
vLLM's two, and of vLLM's prefetch offloader; one × 32 of its UVA offloader. A call can do a part, and the
next one continues its file: `--parts minillm`, then `--parts vllm --resume data/results`. A peer that fails
or is missing leaves a row that says so.

Seconds on an H200. Start of the command 12 (imports, bandwidths). Qwen3-8B, 20 × 256 tokens: ours 15 to load
and warm up, 60 at most to compile the first time, 20 × 256 / 192 = 27; vLLM 100 to load and compile, 27.
Qwen3-1.7B: ours 10 and 20 × 256 / 490 = 10; vLLM 73 and 10. Both again with vLLM's engine in a process of its
own, compiled before: 60 and 27, 45 and 10. Hugging Face, 8B, 4 × 64 tokens: 15 to load, 26.
Offloaded: ours 10 to load, 2 × 3 × 67 / 5.9 = 70; prefetch 42 to load and 3 × 67 / 5.7 = 36; UVA 67 and 10.
In all 720, and 12 for each further call.
"""

import argparse
import sys

import minillm
from experiments import offload_options, peers, side_by_side
from experiments.offload_options import short
from experiments.offloaded import Offloaded
from experiments.requests import Answer, Request, generations, measured, peak, prefills, spread
from experiments.results import Results
from experiments.side_by_side import about, resident_requests, vocab_of
from experiments.vllm_checks import timed_checks

DEFAULTS = {
    "cuda": {
        "models": ["random:Qwen3-1.7B", "random:Qwen3-8B"],
        "prompts": 20,
        "new_tokens": 256,
        "lengths": [128, 1024, 4096],
        "resident": 12,
        "offloaded_tokens": 64,
        "kv_tokens": 4608,
    },
    "cpu": {
        "models": ["tiny"],
        "prompts": 3,
        "new_tokens": 8,
        "lengths": [32, 128],
        "resident": 2,
        "offloaded_tokens": 6,
        "kv_tokens": 2048,
    },
}
PARTS = ("minillm", "vllm", "vllm-process", "transformers", "offloaded", "vllm-prefetch", "vllm-uva")
OFFLOADED_PROMPTS = 3  # short, middle, long
PEER_SLOTS = 2  # of vLLM's prefetch offloader: with one it overlaps nothing
SLOWER_PROMPTS, SLOWER_SHARE = 4, 4  # Hugging Face: prompts, and the part of the new tokens


def main(arguments: list[str] | None = None) -> int:
    """Measure the parts that were asked for; exit status 1 if a goal is missed."""
    options = read_options(arguments)
    names = ("new_tokens", "lengths", "resident", "offloaded_tokens", "kv_tokens")
    settings = offload_options.settings(options, *names)
    results = Results("vllm", options.machine, options.out, settings, options.resume)
    for part in PARTS:
        if part in options.parts:
            MEASURE[part](results, options)
    return side_by_side.conclude(results, options, timed_checks)


def read_options(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = offload_options.parser("vllm_compare", __doc__.split("\n")[0])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="default: all")
    parser.add_argument(
        "--models", nargs="+", help="resident ones; default: random:Qwen3-1.7B and -8B, or tiny"
    )
    parser.add_argument("--prompts", type=int, help="spread over data/prompts.jsonl; default: 20, or 3")
    parser.add_argument("--new-tokens", type=int, help="of resident models; default: 256, or 8")
    parser.add_argument("--lengths", type=int, nargs="+", help="tokens of the prefills")
    parser.add_argument("--resident", type=int, help="layers that stay when others stream; default: 12, or 2")
    parser.add_argument("--offloaded-tokens", type=int, help="a prompt; default: 64, or 6")
    parser.add_argument("--kv-tokens", type=int, help="tokens of every KV cache; default: 4608, or 2048")
    return offload_options.complete(parser.parse_args(arguments), DEFAULTS)


# ---- resident ----


def measure_minillm(results: Results, options: argparse.Namespace) -> None:
    """Ours, each model in turn."""
    for model in options.models:
        requests = resident_requests(options, model, "minillm", spread(options.prompts), options.new_tokens)
        side_by_side.measure_resident(results, options, model, requests)


def measure_vllm(results: Results, options: argparse.Namespace) -> None:
    """vLLM with all its defaults but one: its engine is where its GPU memory can be seen."""
    for model in options.models:
        requests = resident_requests(options, model, "vllm", spread(options.prompts), options.new_tokens)
        side_by_side.measure_vllm(results, options, model, "resident", requests)


def measure_process(results: Results, options: argparse.Namespace) -> None:
    """The same with the engine beside its caller, vLLM's default: its GPU memory cannot be seen from here."""
    for model in options.models:
        vocab, start = vocab_of(options, model), f"{short(model)}/vllm/resident-process"
        requests = generations(start, vocab, spread(options.prompts), options.new_tokens)
        requests += prefills(start, vocab, options.lengths)
        side_by_side.measure_vllm(results, options, model, "resident-process", requests)


def measure_transformers(results: Results, options: argparse.Namespace) -> None:
    """Hugging Face on the large model: fewer prompts, fewer tokens."""
    few, tokens = spread(SLOWER_PROMPTS), max(2, options.new_tokens // SLOWER_SHARE)
    side_by_side.measure_transformers(results, options, options.model, few, tokens)


# ---- offloaded ----


def offloaded_requests(
    options: argparse.Namespace, start: str, indices: list[int], tokens: int
) -> list[Request]:
    """Answers of a model whose layers stream, and the request that takes most memory."""
    vocab = vocab_of(options, options.model)
    return [*generations(start, vocab, indices, tokens), peak(start, vocab, max(options.lengths))]


def measure_offloaded(results: Results, options: argparse.Namespace) -> None:
    """Ours with one slot: as many layers resident as vLLM has, then as many on the device as it has."""
    start, least = f"{short(options.model)}/minillm/prefetch", options.resident + 1
    starts = {least: start, least + PEER_SLOTS - 1: f"{start}-{least + PEER_SLOTS - 1}"}
    asked = {
        budget: offloaded_requests(options, start, spread(OFFLOADED_PROMPTS), options.offloaded_tokens)
        for budget, start in starts.items()
    }
    if not any(peers.missing_of(results, requests) for requests in asked.values()):
        return
    offload_options.limit_memory(options.device, options.cap_gib)
    flags, fields = {"gpu_layer_budget": least, "slots": 1}, ours(results, options)
    with (
        peers.recorded(results, start, fields),
        Offloaded(options, options.kv_tokens, fields["link_gb_s"], **flags) as offloaded,
    ):
        loaded = {**offloaded.loaded(), "version": minillm.__version__, "kv_tokens": options.kv_tokens}
        peers.store(results, start, {"key": "loaded", **loaded, "flags": flags}, fields)
        for budget, requests in asked.items():
            measure_budget(results, offloaded, budget, starts[budget], requests)


def ours(results: Results, options: argparse.Namespace) -> dict:
    """Fields of the rows of our engine when layers stream."""
    fields = about(results, options, options.model, "minillm", "prefetch")
    return fields | {"cap_gib": options.cap_gib}


def measure_budget(
    results: Results, offloaded: Offloaded, budget: int, start: str, requests: list[Request]
) -> None:
    """A row for each request that has none, with at most `budget` layers on the device."""
    options, missing = offloaded.options, peers.missing_of(results, requests)
    if not missing:
        return
    with peers.recorded(results, start, ours(results, options)):
        offloaded.place("prefetch", budget, slots=1)
        offloaded.warm(missing[0].prompt)  # from now on passes begin with what the last one fetched
        fields = ours(results, options) | offloaded.placed("prefetch")
        fields["host_locked_bytes"] = offloaded.loaded()["locked_bytes"]
        fields["path"] = side_by_side.path_of(offloaded.llm)
        for request in missing:
            row = measured(request, lambda request: streamed_answer(offloaded, request))
            peers.store(results, start, row, fields)


def streamed_answer(offloaded: Offloaded, request: Request) -> Answer:
    """One request; RuntimeError unless each pass copied what the schedule says."""
    passes = request.new_tokens
    return offloaded.counted(passes, lambda: side_by_side.answer(offloaded.llm, request))[0]


def measure_prefetch(results: Results, options: argparse.Namespace) -> None:
    """vLLM's prefetch offloader on the same prompts."""
    start = f"{short(options.model)}/vllm/prefetch"
    requests = offloaded_requests(options, start, spread(OFFLOADED_PROMPTS), options.offloaded_tokens)
    where = {"resident": options.resident, "slots": PEER_SLOTS}
    side_by_side.measure_vllm(results, options, options.model, "prefetch", requests, **where)


def measure_uva(results: Results, options: argparse.Namespace) -> None:
    """vLLM's UVA offloader on the middle one, with half the tokens."""
    middle = spread(OFFLOADED_PROMPTS)[1]
    start, tokens = f"{short(options.model)}/vllm/uva", max(2, options.offloaded_tokens // 2)
    requests = offloaded_requests(options, start, [middle], tokens)
    side_by_side.measure_vllm(results, options, options.model, "uva", requests, resident=options.resident)


MEASURE = {
    "minillm": measure_minillm,
    "vllm": measure_vllm,
    "vllm-process": measure_process,
    "transformers": measure_transformers,
    "offloaded": measure_offloaded,
    "vllm-prefetch": measure_prefetch,
    "vllm-uva": measure_uva,
}


if __name__ == "__main__":
    sys.exit(offload_options.run(main))
