"""Engines side by side on one machine: what the comparing experiments share.

Every row says which engine it is of, and what link and device memory did in the same command. Ours runs in
this process, peers in their own.
"""

import argparse
import time
from collections.abc import Callable

import torch

import minillm
from experiments import offload_options, peers
from experiments.offload_checks import row_table
from experiments.offload_options import on, short
from experiments.requests import Answer, Request, generations, measured, peak, prefills
from experiments.results import Results, all_met, report, reported
from experiments.vllm_checks import failed_checks
from minillm import LLM, SamplingParams

# ---- what rows say ----


def about(results: Results, options: argparse.Namespace, model: str, engine: str, mode: str, **more) -> dict:
    """Fields of each row of one engine in one mode; bandwidths in GB/s, of this very command."""
    measured_here = results.description.get("ceilings", {})
    made = {"model": short(model), "engine": engine, "mode": mode, "path": None}
    made |= {"resident": None, "budget": None, "slots": None}
    made |= {"link_gb_s": measured_here.get("link_gb_s") or options.link_gb_s}
    device = measured_here.get("device_copy_gb_s") or measured_here.get("host_copy_gb_s")
    return {**made, "device_gb_s": device, **more}


def layers_of(options: argparse.Namespace, model: str) -> int:
    return offload_options.config_of(on(options, model))[0].num_hidden_layers


def vocab_of(options: argparse.Namespace, model: str) -> int:
    return offload_options.config_of(on(options, model))[0].vocab_size


def conclude(
    results: Results, options: argparse.Namespace, timed_checks: Callable[[list[dict], str], list[dict]]
) -> int:
    """Judge the rows so far, print and store them; exit status 1 if a goal is missed."""
    checks = timed_checks(results.rows(), short(options.model))
    checks = [*(checks if options.judged else reported(checks)), *failed_checks(results.rows())]
    print(row_table([row for row in results.rows() if "ttft_s" in row]))
    report(results.finish(checks), checks)
    return 0 if all_met(checks) else 1


# ---- what is asked ----


def resident_requests(
    options: argparse.Namespace, model: str, engine: str, indices: list[int], tokens: int, suffix: str = ""
) -> list[Request]:
    """Answers, prefills, and the request that takes most memory, of a model that is all on the device."""
    vocab, start = vocab_of(options, model), f"{short(model)}/{engine}"
    return [
        *generations(f"{start}/resident{suffix}", vocab, indices, tokens),
        *(prefills(start, vocab, options.lengths) if not suffix else []),
        peak(f"{start}/resident{suffix}", vocab, max(options.lengths)),
    ]


# ---- ours ----


def measure_resident(
    results: Results, options: argparse.Namespace, model: str, requests: list[Request], eager: bool = False
) -> None:
    """The missing rows of our engine with every layer on the device."""
    missing = peers.missing_of(results, requests)
    if not missing:
        return
    offload_options.limit_memory(options.device, None)
    layers = layers_of(options, model)
    fields = about(results, options, model, "minillm", "resident", resident=layers)
    start = f"{short(model)}/minillm/resident" + ("-eager" if eager else "")
    flags = {"dtype": options.dtype, "offload": "none", "max_model_len": options.kv_tokens}
    flags |= {"enforce_eager": True} if eager else {}
    began = time.perf_counter()
    with peers.recorded(results, start, fields), LLM(model, device=options.device, **flags) as llm:
        loaded = loaded_row(llm, flags, time.perf_counter() - began, missing[0].prompt)
        fields["path"] = path_of(llm)
        peers.store(results, start, {"key": "loaded", **loaded}, fields)
        for request in missing:
            peers.store(results, start, measured(request, lambda request: answer(llm, request)), fields)
    if options.device == "cuda":
        torch.cuda.empty_cache()  # the next engine gets an empty device


def loaded_row(llm: LLM, flags: dict, load_s: float, prompt: list[int]) -> dict:
    """An engine's start; `warm_s` are the seconds of its first answer: compiling and capturing."""
    began = time.perf_counter()
    llm.generate(prompt, SamplingParams(max_tokens=3, ignore_eos=True))
    return {
        "load_s": load_s,
        "warm_s": time.perf_counter() - began,
        "version": minillm.__version__,
        "flags": flags,
        "kv_tokens": llm.max_model_len,
        "report": llm.report(),
    }


def answer(llm: LLM, request: Request) -> Answer:
    """One request to our engine."""
    if request.whole_context:
        return _opened(llm, request)
    params, before = SamplingParams(max_tokens=request.new_tokens, ignore_eos=True), replays(llm)
    output = llm.generate(request.prompt, params)[0]
    metrics = output.metrics
    return Answer(
        token_ids=output.token_ids,
        ttft_s=metrics.ttft_s,
        total_s=metrics.total_s,
        peak_bytes=metrics.peak_memory_bytes,
        reserved_bytes=reserved(llm),
        graph_replays=None if before is None else replays(llm) - before,
    )


def _opened(llm: LLM, request: Request) -> Answer:
    """The first tokens of an answer that could fill the context, so with a KV cache as large as a peer's."""
    params = SamplingParams(max_tokens=llm.max_model_len, ignore_eos=True)
    began, times, token_ids = time.perf_counter(), [], []
    stream = llm.stream(request.prompt, params)
    while len(token_ids) < request.new_tokens:
        token_ids += next(stream).token_ids
        times.append(time.perf_counter() - began)
    peak_bytes = llm._accelerator.peak_bytes()
    stream.close()
    return Answer(token_ids, times[0], times[-1], peak_bytes, reserved(llm))


def reserved(llm: LLM) -> int | None:
    """Most bytes that the allocator took, what it keeps for later and graphs included; None off the GPU."""
    return torch.cuda.max_memory_reserved(llm.device) if llm.device.type == "cuda" else None


def path_of(llm: LLM) -> str:
    """What an engine that has answered once did: the fast path replays graphs."""
    return "fast" if replays(llm) else "eager"


def replays(llm: LLM) -> int | None:
    """Decode steps so far that were replays of a graph; None where there is no GPU to replay on."""
    return getattr(llm, "graph_replays", None) if llm.device.type == "cuda" else None


# ---- peers ----


def measure_transformers(
    results: Results,
    options: argparse.Namespace,
    model: str,
    indices: list[int],
    tokens: int,
    setting: str | None = None,
    **more,
) -> None:
    """Hugging Face's `generate` on some of the prompts; `more`: what a `setting` of it is told."""
    suffix = f"-{setting.replace(' ', '-')}" if setting else ""
    requests = resident_requests(options, model, "transformers", indices, tokens, suffix)
    dtype = str(offload_options.config_of(on(options, model))[1]).removeprefix("torch.")
    asked = {"model": model, "dtype": dtype, "device": options.device, **more}
    resident = layers_of(options, model)
    fields = about(results, options, model, "transformers", "resident", resident=resident, path=setting)
    start = f"{short(model)}/transformers/resident{suffix}"
    peers.measure(results, start, "transformers", asked, requests, fields)


def measure_vllm(
    results: Results,
    options: argparse.Namespace,
    model: str,
    mode: str,
    requests: list[Request],
    resident: int | None = None,
    slots: int | None = None,
) -> None:
    """vLLM in one mode; `resident` layers stay and `slots` are what others pass through, where any stream."""
    stays = layers_of(options, model) if resident is None else resident
    fields = about(results, options, model, "vllm", mode, resident=stays, slots=slots)
    start = f"{short(model)}/vllm/{mode}"
    asked = {
        "model": model,
        "mode": mode,
        "resident": resident,
        "step": slots,
        "kv_tokens": options.kv_tokens,
    }
    peers.measure(results, start, "vllm", asked, requests, fields)
