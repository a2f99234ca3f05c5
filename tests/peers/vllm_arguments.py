"""What vLLM 0.24.0 is told for each way of running a dense Qwen3, and what it has to show for it. No vLLM."""

from math import gcd

from minillm import ModelConfig, memory
from minillm.units import GIB

ELEMENT = 2  # bytes, bfloat16
ENVIRONMENT = {  # must be set before `import vllm`
    "VLLM_USE_FLASHINFER_SAMPLER": "0",  # greedy needs none
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # so that the offloader object lives in this process
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
}
STREAMING = {"VLLM_USE_V2_MODEL_RUNNER": "0"}  # its default for Qwen3, V2, ignores every offload argument
OWN_PROCESS = {  # vLLM's default: the engine runs beside its caller, who cannot see its GPU memory
    "VLLM_ENABLE_V1_MULTIPROCESSING": "1",
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",  # a fork of a process that has asked for GPUs may not use them
}
OFFLOADERS = {"resident": "NoopOffloader", "uva": "UVAOffloader", "prefetch": "PrefetchOffloader"}
# One graph of the whole step: copies overlap across layers. Cut at every attention they would not.
FULL_GRAPH = {"mode": 0, "cudagraph_mode": "FULL", "cudagraph_capture_sizes": [1]}


def environment(asked: dict) -> dict[str, str]:
    """Variables for `asked`: with mode "resident-process" the engine gets a process of its own."""
    others = {"resident-process": OWN_PROCESS, "prefetch": STREAMING, "uva": STREAMING}
    return {**ENVIRONMENT, **others.get(asked["mode"], {})}


def engine_arguments(config: ModelConfig, asked: dict) -> dict:
    """Keyword arguments of `vllm.LLM`, all but the model; ValueError for what would be wrong or pointless.

    `asked`: mode, resident (layers that stay), step (slots of the prefetch offloader), kv_tokens. The KV
    cache is of exactly so many tokens: vLLM otherwise fills the GPU with it, and its memory says nothing.
    """
    return {
        "load_format": "dummy",
        "skip_tokenizer_init": True,
        "dtype": "bfloat16",
        "max_model_len": asked["kv_tokens"],
        "kv_cache_memory_bytes": asked["kv_tokens"] * memory.kv_bytes_per_token(config, ELEMENT),
        "gpu_memory_utilization": 0.5,  # only what has to be free at the start, with the size above
        "enable_prefix_caching": False,  # a prompt that comes again is read again
        **offload_arguments(config, asked),
    }


def offload_arguments(config: ModelConfig, asked: dict) -> dict:
    """Those that differ by mode; resident is all of vLLM's defaults: torch.compile and graphs."""
    mode, resident, layers = asked["mode"], asked["resident"], config.num_hidden_layers
    if config.num_experts:
        raise ValueError("vLLM is compared on dense models only")
    if mode in ("resident", "resident-process"):
        return {}
    if not 0 <= resident < layers:
        raise ValueError(f"{mode} with {resident} of {layers} layers resident: nothing would stream")
    streamed, graph = layers - resident, {"compilation_config": FULL_GRAPH}
    if mode == "uva":
        return graph | {"cpu_offload_gb": streamed * layer_bytes(config) / GIB}
    if streamed % asked["step"]:
        raise ValueError(
            f"a prefetch step of {asked['step']} does not divide {streamed} layers: "
            "vLLM would overwrite a slot that is still to be read"
        )
    # vLLM streams the last layers of every group: as many equal groups as the two counts allow.
    groups = gcd(layers, resident)
    return graph | {
        "offload_group_size": layers // groups,
        "offload_num_in_group": streamed // groups,
        "offload_prefetch_step": asked["step"],
    }


def counts_bytes(config: ModelConfig, sequences: int) -> int:
    """GPU memory of the V2 runner's counts of each token of each sequence, whatever runs: int32 and a bit."""
    return sequences * (4 * config.vocab_size + 4 * -(-config.vocab_size // 32))


def layer_bytes(config: ModelConfig) -> int:
    """Bytes of a layer's weights."""
    return sum(memory.block_bytes(config, 0, part, ELEMENT) for part in ("attention", "mlp"))


def config_json(config: ModelConfig) -> dict:
    """A `config.json` for these shapes, as Qwen3's release has it."""
    same = (
        *("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"),
        *("num_key_value_heads", "head_dim", "rms_norm_eps", "max_position_embeddings"),
        *("tie_word_embeddings", "attention_bias"),
    )
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "hidden_act": "silu",
        "torch_dtype": "bfloat16",
        "rope_theta": config.rope.rope_theta,
        "rope_scaling": None,
        "eos_token_id": config.eos_token_ids[0] if config.eos_token_ids else None,
        "use_sliding_window": False,
        **{name: getattr(config, name) for name in same},
    }


def offloaded(offloader: object, config: ModelConfig, asked: dict) -> dict:
    """What vLLM's offloader object says that it did; RuntimeError if that is not what was asked for."""
    mode, kind = asked["mode"], type(offloader).__name__
    if kind != OFFLOADERS[mode]:
        raise RuntimeError(f"vLLM made a {kind}, not a {OFFLOADERS[mode]}")
    if mode == "resident":
        return {"type": kind, "bytes": 0}
    streamed = config.num_hidden_layers - asked["resident"]
    found = _uva(offloader) if mode == "uva" else _prefetch(offloader, streamed)
    expected = streamed * layer_bytes(config)
    if abs(found["bytes"] - expected) > 0.005 * expected:
        raise RuntimeError(f"vLLM offloaded {found['bytes']} bytes, expected {expected}")
    return {"type": kind, **found}


def _uva(offloader: object) -> dict:
    if not offloader.uva_offloading or not offloader.pin_memory:
        raise RuntimeError("vLLM's UVA is off, or its host memory is not pinned")
    return {"bytes": offloader.cpu_offload_bytes}


def _prefetch(offloader: object, streamed: int) -> dict:
    modules = offloader.module_offloaders
    if len(modules) != streamed:
        raise RuntimeError(f"vLLM offloaded {len(modules)} layers, not {streamed}")
    if not all(p._cpu_storage.is_pinned() for m in modules for p in m._param_offloaders.values()):
        raise RuntimeError("some of vLLM's offloaded weights are not in pinned memory")
    return {
        "bytes": offloader.total_offloaded_bytes,
        "slot_bytes": offloader.buffer_pool.total_bytes,
        "group_size": offloader.group_size,
        "num_in_group": offloader.num_in_group,
        "prefetch_step": offloader.prefetch_step,
    }
