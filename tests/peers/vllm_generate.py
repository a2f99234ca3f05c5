"""vLLM on one GPU, batch 1, greedy: `python -m tests.peers.vllm_generate JSON` prints a line of JSON a row.

One process is one way of running one model. The JSON has model ("random:Qwen3-8B": vLLM gets dummy weights
in those shapes), mode (resident, resident-process, prefetch, uva), resident, step, kv_tokens, requests (see
`experiments/requests.py`); "-" reads it from standard input. The first row is the engine's start, then one
a request; {"skipped": why} where vLLM or a GPU is missing. No row where vLLM did not do what it was asked.
README.md says how vLLM comes to a machine without network and what of it is not stock.
"""

import importlib.util
import json
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch

from experiments.requests import Answer, Request, measured
from minillm import ModelConfig, presets
from tests.peers.rows import requests_of, speak
from tests.peers.vllm_arguments import config_json, counts_bytes, engine_arguments, environment, offloaded


def main(asked: dict) -> Iterator[dict]:
    """The rows, each as soon as it is measured."""
    if reason := missing(asked):
        yield {"skipped": reason}
        return
    for name, value in environment(asked).items():
        os.environ.setdefault(name, value)
    here = asked["mode"] != "resident-process"
    config = presets.load(asked["model"].removeprefix("random:"))
    began = time.perf_counter()
    llm, loaded = start(config, asked)
    locked = host_memory()["RssShmem"] if asked["resident"] is not None else None
    yield {"key": "loaded", "load_s": time.perf_counter() - began, **loaded, **host_memory()}
    for request in requests_of(asked):
        yield {**measured(request, lambda request: answer(llm, request, here)), "host_locked_bytes": locked}


def missing(asked: dict) -> str | None:
    """Why nothing can be measured here, or None."""
    if importlib.util.find_spec("vllm") is None:
        return "vLLM is not installed"
    if not torch.cuda.is_available():
        return "vLLM is measured on a GPU only"
    if not asked["model"].startswith("random:"):
        return "vLLM is measured on published geometries with random weights only"
    return None


def start(config: ModelConfig, asked: dict) -> tuple[object, dict]:
    """vLLM's engine, and what it was told and did."""
    import vllm

    from tests.peers import vllm_dummies

    vllm_dummies.install()
    arguments = engine_arguments(config, asked)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(config_json(config)))
        llm = vllm.LLM(model=folder, **arguments)
    return llm, {
        "version": vllm.__version__,
        "kv_tokens": asked["kv_tokens"],
        "flags": {**arguments, **{name: os.environ[name] for name in environment(asked)}},
        **of_engine(llm.llm_engine.vllm_config, config),
        **(of_process(config, asked) if asked["mode"] != "resident-process" else {}),
    }


def of_engine(made: object, config: ModelConfig) -> dict:
    """What vLLM's own configuration says that was not asked for."""
    v2, sequences = made.use_v2_model_runner, made.scheduler_config.max_num_seqs
    return {"v2_runner": v2, "counts_bytes": counts_bytes(config, sequences) if v2 else 0}


def of_process(config: ModelConfig, asked: dict) -> dict:
    """What can be seen where the engine is in this process: its offloader, and memory before any request."""
    from vllm.model_executor.offloader.base import get_offloader

    torch.cuda.empty_cache()  # what trying out its largest batch left behind
    idle = torch.cuda.memory_allocated()
    return {"offloader": offloaded(get_offloader(), config, asked), "idle_bytes": idle}


def answer(llm: object, request: Request, here: bool) -> Answer:
    """One request through the engine's own steps, so that its first token is timed in the same request.

    As `LLM.generate` does it, asking for the final output only: an output for each token would cost vLLM time
    that our `generate` does not spend either. `here`: the engine and its GPU memory are in this process.
    """
    from vllm import SamplingParams
    from vllm.inputs.engine import tokens_input
    from vllm.sampling_params import RequestOutputKind

    plain = {"temperature": 0.0, "ignore_eos": True, "detokenize": False}
    params = SamplingParams(max_tokens=request.new_tokens, output_kind=RequestOutputKind.FINAL_ONLY, **plain)
    engine = llm.llm_engine
    if here:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    began, first, ended = time.perf_counter(), None, []
    name = engine.add_request(request.key, tokens_input(request.prompt), params)
    while engine.has_unfinished_requests():
        ended += engine.step()
        if first is None and not waits(engine, name):
            first = time.perf_counter()
    total = time.perf_counter() - began
    return Answer(
        token_ids=list(ended[0].outputs[0].token_ids),
        ttft_s=first - began,
        total_s=total,
        peak_bytes=torch.cuda.max_memory_allocated() if here else None,
        reserved_bytes=torch.cuda.max_memory_reserved() if here else None,
    )


def waits(engine: object, name: str) -> bool:
    """Whether the host knows no token of this request yet; vLLM forgets requests that have ended."""
    state = engine.output_processor.request_states.get(name)
    return state is not None and state.is_prefilling


def host_memory(status: Path = Path("/proc/self/status")) -> dict[str, int]:
    """Bytes of this process: most it held (VmHWM), and shared pages (RssShmem), which pinned memory is."""
    fields = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
    return {name: int(fields[name].split()[0]) * 1024 for name in ("VmHWM", "RssShmem")}


if __name__ == "__main__":
    speak(main)
