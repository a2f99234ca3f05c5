"""A GGUF file's metadata as the keys of a Hugging Face `config.json`, for `ModelConfig.from_dict`.

`qwen3` and `llama`. What a file could say that would change the computation and is not understood is
refused here, by name.
"""

from typing import Any

from minillm.errors import InputError
from minillm.quant.gguf.blocks import FLOATS, dequantise
from minillm.quant.gguf.file import GGUFFile

ARCHITECTURES = ("qwen3", "llama")  # llama.cpp's names, and model_type in config.json
DTYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
UNSUPPORTED = {"expert_count": "experts", "attention.sliding_window": "a sliding window"}


def read_config(file: GGUFFile) -> dict[str, Any]:
    """Keys and values as in `config.json`; InputError for another architecture and for missing figures."""
    architecture = file.text("general.architecture")
    if architecture not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise InputError(f"{file.path} is a model of architecture {architecture!r}: minillm reads {known}")
    prefix = architecture + "."
    for key, what in UNSUPPORTED.items():
        if file.whole(prefix + key, 0):
            raise InputError(
                f"{file.path}: {prefix}{key} is {file.get(prefix + key)}: minillm has no {what} here"
            )
    heads = file.whole(prefix + "attention.head_count", low=1)
    return {
        "model_type": architecture,
        "vocab_size": _rows(file, "token_embd.weight"),
        "hidden_size": file.whole(prefix + "embedding_length", low=1),
        "intermediate_size": file.whole(prefix + "feed_forward_length", low=1),
        "num_hidden_layers": file.whole(prefix + "block_count", low=1),
        "num_attention_heads": heads,
        "num_key_value_heads": file.whole(prefix + "attention.head_count_kv", heads, low=1),
        "head_dim": _head_dim(file, prefix, heads),
        "rms_norm_eps": file.number(prefix + "attention.layer_norm_rms_epsilon"),
        "max_position_embeddings": file.whole(prefix + "context_length", low=1),
        "rope_parameters": _rope(file, prefix),
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "attention_bias": "blk.0.attn_q.bias" in file.tensors,
        "mlp_bias": "blk.0.ffn_gate.bias" in file.tensors,
        "dtype": _dtype(file),
        "eos_token_id": _end_tokens(file),
    }


def _rows(file: GGUFFile, name: str) -> int:
    if name not in file.tensors:
        raise InputError(f"{file.path} has no {name}: it holds no whole model, download it again")
    return file.tensors[name].shape[0]


def _head_dim(file: GGUFFile, prefix: str, heads: int) -> int:
    """Given, or width / heads; the whole head must be rotated, and values must be as wide as keys."""
    width = file.whole(prefix + "embedding_length", low=1) // heads
    head_dim = file.whole(prefix + "attention.key_length", width, low=1)
    for key in ("attention.value_length", "rope.dimension_count"):
        if file.whole(prefix + key, head_dim) != head_dim:
            raise InputError(
                f"{file.path}: {prefix}{key} is {file.get(prefix + key)}, but heads are {head_dim} wide: "
                "minillm rotates whole heads, with keys and values of one width"
            )
    return head_dim


def _rope(file: GGUFFile, prefix: str) -> dict[str, Any]:
    """Base frequency, and the scaling if the file names one: `read_rope` refuses what is not supported."""
    factors = file.tensors.get("rope_freqs.weight")
    if factors is not None and not (dequantise(factors.format, factors.packed) == 1).all():
        raise InputError(
            f"{file.path} has rope_freqs.weight, the stretched frequencies of Llama 3.1 and later, which are "
            "not supported: choose Llama 3, SmolLM2 or Qwen3"
        )
    rope: dict[str, Any] = {"rope_theta": file.number(prefix + "rope.freq_base", 10000.0)}
    kind = file.text(prefix + "rope.scaling.type", "none")
    if kind == "none":
        return rope | {"rope_type": "default"}
    rope |= {"rope_type": kind, "factor": file.number(prefix + "rope.scaling.factor")}
    original = file.get(prefix + "rope.scaling.original_context_length")
    return rope if original is None else rope | {"original_max_position_embeddings": original}


def _dtype(file: GGUFFile) -> str:
    """What the matrices are stored in, or bfloat16 for packed ones: what they were trained in."""
    kinds = {t.format.name.removeprefix("gguf-") for t in file.tensors.values() if len(t.shape) > 1}
    return DTYPES[kinds.pop()] if len(kinds) == 1 and kinds <= set(FLOATS) else "bfloat16"


def _end_tokens(file: GGUFFile) -> list[int]:
    """The end of a text and, where it is another token, the end of a turn."""
    keys = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id")
    return list(dict.fromkeys(file.whole(key) for key in keys if file.get(key) is not None))
