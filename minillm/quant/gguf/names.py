"""llama.cpp's tensor names as Hugging Face's, and its order of query and key rows undone.

llama.cpp rotates neighbouring rows of a head, Hugging Face rows half a head apart. For the architecture
`llama` its converter therefore reorders the rows of q and k (weights and biases); for `qwen3` it does not.
"""

import re

import torch

from minillm.checks import some
from minillm.errors import InputError
from minillm.quant.gguf.file import GGUFFile, StoredTensor

MODEL = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
REORDERED = ("llama",)  # architectures whose q and k rows are in llama.cpp's order
_LAYER_NAME = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")


def hugging_face_name(name: str) -> str | None:
    """`blk.0.attn_q.weight` → `model.layers.0.self_attn.q_proj.weight`; None for an unknown name."""
    if found := _LAYER_NAME.fullmatch(name):
        index, module, kind = found.groups()
        return f"model.layers.{index}.{LAYER[module]}.{kind}" if module in LAYER else None
    module, _, kind = name.rpartition(".")
    return f"{MODEL[module]}.{kind}" if module in MODEL and kind == "weight" else None


def restored_rows(packed: torch.Tensor, heads: int) -> torch.Tensor:
    """Rows [heads · D, bytes] from llama.cpp's order to Hugging Face's; whole rows move, still packed."""
    return packed.unflatten(0, (heads, -1, 2)).transpose(1, 2).flatten(0, 2)


def match(file: GGUFFile, shapes: dict[str, tuple[int, ...]]) -> dict[str, StoredTensor]:
    """The file's tensor for each parameter of `shapes` (Hugging Face's names), checked both ways.

    Raises InputError that names what is missing, left over or of another shape. `rope_freqs.weight` is
    `config.py`'s business.
    """
    names = {name: hugging_face_name(name) for name in file.tensors if name != "rope_freqs.weight"}
    found = {ours: file.tensors[name] for name, ours in names.items() if ours}
    if extra := [name for name, ours in names.items() if ours not in shapes]:
        raise InputError(f"{file.path}: {some(extra)} unknown to this model: it is of another architecture")
    if missing := [name for name in shapes if name not in found]:
        raise InputError(f"{file.path}: {some(missing)} missing: download the file again")
    for name, stored in found.items():
        if stored.shape != shapes[name]:
            raise InputError(
                f"{file.path}: {stored.name} has shape {list(stored.shape)}, its metadata ask for "
                f"{list(shapes[name])}: download the file again"
            )
    return found


def rows_of(file: GGUFFile, name: str, stored: StoredTensor) -> torch.Tensor:
    """The packed rows [rows, bytes] of parameter `name` in Hugging Face's order, of a vector one row."""
    architecture = file.text("general.architecture")
    projection = name.split(".")[-2]
    if architecture not in REORDERED or projection not in ("q_proj", "k_proj"):
        return stored.packed
    heads = file.whole(f"{architecture}.attention.head_count", low=1)
    if projection == "k_proj":
        heads = file.whole(f"{architecture}.attention.head_count_kv", heads, low=1)
    packed = stored.packed
    if len(stored.shape) > 1:
        return restored_rows(packed, heads)
    return restored_rows(packed.view(stored.shape[0], -1), heads).reshape(1, -1)
