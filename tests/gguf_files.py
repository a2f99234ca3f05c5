"""GGUF files for the tests, written with the gguf library as llama.cpp's converter writes them."""

from pathlib import Path

import gguf
import numpy as np
import torch

F32 = gguf.GGMLQuantizationType.F32


def permuted(weight: np.ndarray, heads: int) -> np.ndarray:
    """llama.cpp's order of query and key rows: the halves of each head interleaved."""
    out, half = np.empty_like(weight), len(weight) // heads // 2
    for head in range(heads):
        for pair in range(half):
            for which in range(2):
                out[head * 2 * half + 2 * pair + which] = weight[head * 2 * half + which * half + pair]
    return out


def write_gguf(path: Path, model, kind="F32", extra=None, tokenizer: dict | None = None) -> Path:
    """A transformers Qwen3 or Llama in one file; `extra(writer)` may add keys.

    Its matrices are in `kind`, or `kind(name)` by Hugging Face's names.
    """
    config = model.config
    architecture = config.model_type
    writer = gguf.GGUFWriter(path, architecture)
    _geometry(writer, config)
    for key, value in (tokenizer or {}).items():
        getattr(writer, f"add_{key}")(value)
    if extra:
        extra(writer)
    kinds = {name: number for number, name in gguf.MODEL_ARCH_NAMES.items()}
    names = gguf.get_tensor_name_map(kinds[architecture], config.num_hidden_layers)
    for name, parameter in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        weight = parameter.detach().float().numpy()
        if architecture == "llama" and ".q_proj." in name:
            weight = permuted(weight, config.num_attention_heads)
        elif architecture == "llama" and ".k_proj." in name:
            weight = permuted(weight, config.num_key_value_heads)
        theirs = names.get_name(name, try_suffixes=(".weight", ".bias"))
        add(writer, theirs, weight, kind(name) if callable(kind) else kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def add(writer, name: str, weight: np.ndarray, kind: str) -> None:
    """A tensor, packed as `kind` if it is a matrix; of a kind that the library cannot pack, random blocks."""
    number = gguf.GGMLQuantizationType[kind] if weight.ndim > 1 else F32
    made_up = weight.ndim > 1 and kind in SCALES
    packed = random_blocks(kind, *weight.shape) if made_up else gguf.quants.quantize(weight, number)
    writer.add_tensor(name, packed, raw_dtype=number)


# Of blocks of 256 weights: where the float16 scales are, and what they are so that weights are small.
SCALES = {"Q4_K": {0: 0.0004, 2: 0.003}, "Q5_K": {0: 0.0002, 2: 0.003}, "Q6_K": {208: 0.00002}}


def random_blocks(kind: str, rows: int, columns: int) -> np.ndarray:
    """uint8 [rows, bytes]: the same for the same shape."""
    weights, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
    blocks = np.random.default_rng(rows).integers(0, 256, (rows * columns // weights, size), np.uint8)
    for place, scale in SCALES[kind].items():
        blocks[:, place : place + 2] = np.frombuffer(np.float16(scale).tobytes(), np.uint8)
    return blocks.reshape(rows, -1)


def _geometry(writer, config) -> None:
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    writer.add_eos_token_id(2)


def dequantised(weight: torch.Tensor, kind: str) -> torch.Tensor:
    """What is left of `weight` after the library has packed and unpacked it."""
    number = gguf.GGMLQuantizationType[kind] if weight.dim() > 1 else F32
    packed = gguf.quants.quantize(weight.detach().float().numpy(), number)
    return torch.from_numpy(np.array(gguf.quants.dequantize(packed, number)))


def make_llama(seed: int = 0, **config):
    """A small transformers Llama, random, in float32."""
    from transformers import LlamaConfig, LlamaForCausalLM

    values = {
        "vocab_size": 101,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": 256,
        "rope_parameters": {"rope_type": "default", "rope_theta": 50000.0},
    }
    torch.manual_seed(seed)
    model = LlamaForCausalLM(LlamaConfig(**(values | config))).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, parameter.shape[-1] ** -0.5)
    return model
