"""`transformers`' own `generate`, all layers resident: `python -m tests.peers.hf_generate JSON` prints rows,
a line of JSON each.

The JSON has model, dtype, device, requests (see `experiments/requests.py`), and cudnn_attention, true where
it is missing; "-" reads it from standard input. `random:` models hold the weights that ours do. Used as its
documentation asks for speed: KV cache, its default attention (SDPA), inference mode.
"""

import time
from collections.abc import Iterator

import torch
import transformers
from transformers import PreTrainedModel
from transformers.utils import logging

from experiments import random_reference, reference
from experiments.decode_cpu import theirs
from experiments.machine import ROOT
from experiments.requests import Answer, Request, measured
from tests.peers.rows import requests_of, speak


def main(asked: dict) -> Iterator[dict]:
    """The rows, each as soon as it is measured; the first is the start."""
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.backends.cuda.enable_cudnn_sdp(asked.get("cudnn_attention", True))
    began = time.perf_counter()
    model = loaded(asked["model"], getattr(torch, asked["dtype"]), asked["device"])
    if asked["device"] == "cuda":
        torch.cuda.empty_cache()  # what making the weights took
    flags = {"attention": model.config._attn_implementation, "dtype": asked["dtype"]}
    flags["cudnn_attention"] = torch.backends.cuda.cudnn_sdp_enabled()
    yield {
        "key": "loaded",
        "load_s": time.perf_counter() - began,
        "version": transformers.__version__,
        "flags": flags,
        "kv_tokens": None,  # it grows with the answer
    }
    for request in requests_of(asked):
        yield measured(request, lambda request: answer(model, request, asked["device"]))


def loaded(name: str, dtype: torch.dtype, device: str) -> PreTrainedModel:
    """The `transformers` model of our `name`."""
    if name.startswith("random:"):
        return random_reference.make(name, dtype, device=device)
    return reference.load(ROOT / "data" / name, dtype, device)


def answer(model: PreTrainedModel, request: Request, device: str) -> Answer:
    """One request; its first token is timed by a stopping criterion, which `generate` calls after each."""
    cuda = device == "cuda"
    if cuda:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    token_ids, ttft, total = theirs(model, request.prompt, request.new_tokens, device)
    return Answer(
        token_ids=token_ids,
        ttft_s=ttft,
        total_s=total,
        peak_bytes=torch.cuda.max_memory_allocated() if cuda else None,
        reserved_bytes=torch.cuda.max_memory_reserved() if cuda else None,
    )


if __name__ == "__main__":
    speak(main)
