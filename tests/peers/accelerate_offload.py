"""Offloading by `accelerate`: `python -m tests.peers.accelerate_offload JSON` prints one JSON object.

`transformers`' Qwen3 with random weights in bfloat16, the layers of `resident` on the GPU, the others in host
memory, from where `accelerate`'s hooks bring each to the GPU when it is reached. Used as its documentation
says, `dispatch_model` with a device map; nothing is fetched. The JSON has model, resident, prompt,
new_tokens, cap_gib, device, and cudnn_attention, true where it is missing; on the CPU all layers are brought
from host memory to host memory, for tests.
"""

import json
import sys
from importlib.metadata import PackageNotFoundError, version

import torch
from transformers import PreTrainedModel
from transformers.utils import logging

from experiments import offload_options, random_reference
from experiments.decode_cpu import theirs
from minillm import memory, presets

WARM_TOKENS = 2


def main(asked: dict) -> dict:
    """Make the model, dispatch it, answer one prompt; {"skipped": why} where accelerate is missing."""
    try:
        found = version("accelerate")
    except PackageNotFoundError:
        return {"skipped": "accelerate is not installed"}
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.backends.cuda.enable_cudnn_sdp(asked.get("cudnn_attention", True))
    offload_options.limit_memory(asked["device"], asked["cap_gib"])
    name, dtype = asked["model"], torch.bfloat16
    model = random_reference.make(name, dtype, made_on=torch.device(asked["device"]))
    if asked["device"] == "cuda":
        torch.cuda.empty_cache()  # what making the weights took
    streamed = [i for i in range(model.config.num_hidden_layers) if i not in asked["resident"]]
    model = dispatched(model, streamed, asked["device"])
    theirs(model, asked["prompt"], WARM_TOKENS, asked["device"])
    if asked["device"] == "cuda":
        torch.cuda.reset_peak_memory_stats()
    token_ids, ttft, total = theirs(model, asked["prompt"], asked["new_tokens"], asked["device"])
    return {
        "accelerate": found,
        "cudnn_attention": torch.backends.cuda.cudnn_sdp_enabled(),
        "prompt_tokens": len(asked["prompt"]),
        "new_tokens": len(token_ids),
        "token_ids": token_ids,
        "ttft_s": ttft,
        "tokens_per_s": (len(token_ids) - 1) / (total - ttft),
        "peak_bytes": torch.cuda.max_memory_allocated() if asked["device"] == "cuda" else None,
        "resident": model.config.num_hidden_layers - len(streamed),
        "streamed_bytes": layer_bytes(name, streamed, dtype.itemsize),
    }


def dispatched(model: PreTrainedModel, streamed: list[int], device: str) -> PreTrainedModel:
    """The same model behind accelerate's hooks; streamed layers in host memory."""
    import accelerate

    if device == "cpu":
        return accelerate.cpu_offload(model, execution_device=torch.device("cpu"))
    keys = model._skip_keys_device_placement  # as `from_pretrained` gives it: the cache stays where it is
    return accelerate.dispatch_model(model, device_map(model, streamed), main_device=0, skip_keys=keys)


def device_map(model: PreTrainedModel, streamed: list[int]) -> dict[str, int | str]:
    """Where each part lies. The embedding is on the GPU: from host memory all of it would come each token."""
    places: dict[str, int | str] = dict.fromkeys(("model.embed_tokens", "model.norm", "lm_head"), 0)
    for index in range(model.config.num_hidden_layers):
        places[f"model.layers.{index}"] = "cpu" if index in streamed else 0
    return places | {"model.rotary_emb": 0}


def layer_bytes(name: str, layers: list[int], dtype_bytes: int) -> int:
    """Bytes of these layers' weights."""
    plan = memory.plan(presets.load(name.removeprefix("random:")), dtype_bytes, 1)
    return sum(plan.attention_blocks[index] + plan.mlp_blocks[index] for index in layers)


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
