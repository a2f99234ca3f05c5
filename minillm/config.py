"""A model's geometry: the facts of `config.json` that the engine needs, checked once.

Field names are Hugging Face's. Unknown keys are ignored, needed keys are checked for presence, type and
range. Knows nothing of placement, precision of the run, or torch.
"""

import json
import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minillm import checks
from minillm.errors import InputError
from minillm.geometry import block_shapes, check_geometry, parameter_shapes
from minillm.rope_config import DEFAULT_POSITIONS, MAX_POSITIONS, RopeConfig, read_rope

if TYPE_CHECKING:
    from minillm.quant.formats import Format
    from minillm.quant.mix import Mix
    from minillm.quant.stored import StoredFormats

ARCHITECTURES = {
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "llama": "LlamaForCausalLM",
}
DTYPES = {"bfloat16": 2, "float16": 2, "float32": 4}  # bytes an element


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Geometry of a Qwen3 model; `num_experts == 0` means dense."""

    model_type: str = "qwen3"
    vocab_size: int
    hidden_size: int
    intermediate_size: int  # width of the dense MLP
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int = 128  # independent of hidden_size / num_attention_heads
    rms_norm_eps: float = 1e-6
    max_position_embeddings: int = 32768  # positions
    rope: RopeConfig = field(default_factory=RopeConfig)
    tie_word_embeddings: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = True  # whether queries and keys are normalised: Qwen3 does, Llama does not
    quantize: "Mix | StoredFormats | None" = None  # formats of the layers' matrices; None: all are dense
    dtype: str = "float32"  # of the stored weights
    num_experts: int = 0
    num_experts_per_tok: int = 0
    moe_intermediate_size: int = 0  # width of one expert
    norm_topk_prob: bool = False
    decoder_sparse_step: int = 1
    mlp_only_layers: tuple[int, ...] = ()
    eos_token_ids: tuple[int, ...] = ()

    def __post_init__(self):
        check_geometry(self)

    @classmethod
    def from_folder(cls, folder: str | Path) -> "ModelConfig":
        """Read `config.json` and the end tokens of `generation_config.json`.

        Raises InputError for a missing folder or file, for text that is not JSON, and for bad values.
        """
        folder = Path(folder)
        values = read_json(folder / "config.json", "every Hugging Face model folder has one")
        generation = folder / "generation_config.json"
        if generation.is_file():
            # Qwen3 stops at either of two tokens and only this file lists both.
            eos = read_json(generation, "").get("eos_token_id")
            values = values if eos is None else {**values, "eos_token_id": eos}
        return cls.from_dict(values, source=str(folder / "config.json"))

    @classmethod
    def from_dict(cls, values: dict[str, Any], source: str = "config") -> "ModelConfig":
        """Build from the keys of a `config.json`; both spellings of rope, dtype and expert count."""
        try:
            return _as_stored(cls(**_fields(values)), values.get("quantization_config"))
        except InputError as error:
            raise InputError(f"{source}: {error}") from None

    @property
    def context_length(self) -> int:
        """Positions the model can address: YaRN extends the original range by its factor."""
        return max(self.max_position_embeddings, self.rope.extended_length)

    def is_moe_layer(self, index: int) -> bool:
        """Whether layer `index` routes to experts (Hugging Face's rule for Qwen3-MoE)."""
        if not self.num_experts or index in self.mlp_only_layers:
            return False
        return (index + 1) % self.decoder_sparse_step == 0

    def formats(self, index: int, part: str) -> "dict[str, Format]":
        """Formats of the quantised matrices of block `part` of layer `index`, by their names in the layer."""
        if self.quantize is None:
            return {}
        names = [name for name in block_shapes(self, index, part) if name.endswith("_proj.weight")]
        found = {name: self.quantize.format(index, part, name) for name in names}
        return {name: format for name, format in found.items() if format is not None}

    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        """Hugging Face's parameter names and shapes, in the order of the forward pass."""
        return parameter_shapes(self)


def read_json(path: Path, hint: str) -> dict[str, Any]:
    """The object in a JSON file; InputError when it is missing, unreadable or not an object."""
    if not path.parent.is_dir():
        raise InputError(f"no folder {str(path.parent)!r}: give a folder, a hub id, tiny or random:NAME")
    if not path.is_file():
        raise InputError(f"no {path.name} in {str(path.parent)!r}" + (f": {hint}" if hint else ""))
    try:
        # A byte order mark is no JSON, but editors write it. ValueError: also a number of 4,300 digits.
        values = json.loads(path.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not readable JSON ({error}): download it again") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    if not isinstance(values, dict):
        raise InputError(f"{path} holds a {type(values).__name__}, not a JSON object: download it again")
    return values


# ---- reading ----


def _fields(values: dict[str, Any]) -> dict[str, Any]:
    model_type = _architecture(values)
    heads = _whole(values, "num_attention_heads")
    hidden = _whole(values, "hidden_size")
    fields = {
        "model_type": model_type,
        "vocab_size": _whole(values, "vocab_size"),
        "hidden_size": hidden,
        "intermediate_size": _whole(values, "intermediate_size"),
        "num_hidden_layers": _whole(values, "num_hidden_layers"),
        "num_attention_heads": heads,
        "num_key_value_heads": _whole(values, "num_key_value_heads", heads),
        "head_dim": _head_dim(values, hidden // heads),
        "rms_norm_eps": checks.number("rms_norm_eps", _or(values, "rms_norm_eps", 1e-6), 0.0, above=True),
        "max_position_embeddings": _whole(
            values, "max_position_embeddings", DEFAULT_POSITIONS, MAX_POSITIONS
        ),
        "rope": read_rope(values),
        "tie_word_embeddings": _flag(values, "tie_word_embeddings"),
        "attention_bias": _flag(values, "attention_bias"),
        "mlp_bias": _flag(values, "mlp_bias"),
        "qk_norm": model_type != "llama",
        "dtype": _dtype(values),
        "eos_token_ids": _token_ids(values),
    }
    return fields | _experts(values) if model_type == "qwen3_moe" else fields


def _head_dim(values: dict[str, Any], quotient: int) -> int:
    """Left out, it is 128 in a dense file, hidden / heads in an MoE file: as Hugging Face's two classes."""
    left_out = 128 if values["model_type"] == "qwen3" else quotient
    return quotient if values.get("head_dim", 0) is None else _whole(values, "head_dim", left_out)


def _experts(values: dict[str, Any]) -> dict[str, Any]:
    count_key = "num_local_experts" if "num_local_experts" in values else "num_experts"
    return {
        "num_experts": _whole(values, count_key),
        "num_experts_per_tok": _whole(values, "num_experts_per_tok"),
        "moe_intermediate_size": _whole(values, "moe_intermediate_size"),
        "norm_topk_prob": _flag(values, "norm_topk_prob"),
        "decoder_sparse_step": _whole(values, "decoder_sparse_step", 1),
        "mlp_only_layers": _layer_list(values),
    }


def _architecture(values: dict[str, Any]) -> str:
    model_type = values.get("model_type")
    if not isinstance(model_type, str) or model_type not in ARCHITECTURES:
        raise InputError(
            f"model_type {model_type!r} is not supported: choose one of {', '.join(ARCHITECTURES)}"
        )
    if _or(values, "hidden_act", "silu") != "silu":
        raise InputError(f"hidden_act {values['hidden_act']!r} is not supported: Qwen3 and Llama use silu")
    if values.get("use_sliding_window"):
        raise InputError("use_sliding_window true is not supported: every published Qwen3 has it false")
    _refuse_layer_types(_or(values, "layer_types", []))
    return model_type


def _refuse_layer_types(kinds: Any) -> None:
    odd = [kind for kind in kinds if kind != "full_attention"] if isinstance(kinds, list) else [kinds]
    if odd:
        raise InputError(
            f"layer_types has {checks.shown(odd[0])}, which is not supported: minillm knows full_attention"
        )


def _as_stored(config: ModelConfig, settings: Any) -> ModelConfig:
    """With the formats of a model whose file says that it is quantised."""
    if not settings:
        return config
    from minillm.quant.stored import read_settings

    return replace(config, quantize=read_settings(config, settings))


def _or(values: dict[str, Any], key: str, default: Any) -> Any:
    """The value of `key`; null counts as absent."""
    value = values.get(key)
    return default if value is None else value


def _whole(values: dict[str, Any], key: str, default: int | None = None, high: float = math.inf) -> int:
    value = _or(values, key, default)
    if value is None:
        raise InputError(f"{key} is missing: the model's geometry needs it")
    return checks.whole(key, value, 1, high)


def _flag(values: dict[str, Any], key: str) -> bool:
    value = _or(values, key, False)
    if not isinstance(value, bool):
        raise InputError(f"{key} is {value!r}: it must be true or false")
    return value


def _dtype(values: dict[str, Any]) -> str:
    value = values.get("dtype") or values.get("torch_dtype") or "float32"
    if not isinstance(value, str) or value not in DTYPES:
        raise InputError(f"dtype {value!r} is not supported: minillm reads {', '.join(DTYPES)}")
    return value


def _token_ids(values: dict[str, Any]) -> tuple[int, ...]:
    value = values.get("eos_token_id")
    ids = [] if value is None else value if isinstance(value, list) else [value]
    if any(isinstance(i, bool) or not isinstance(i, int) or i < 0 for i in ids):
        raise InputError(f"eos_token_id is {value!r}: it must be a token id or a list of them")
    return tuple(ids)


def _layer_list(values: dict[str, Any]) -> tuple[int, ...]:
    value = values.get("mlp_only_layers") or []
    if not isinstance(value, list) or any(isinstance(i, bool) or not isinstance(i, int) for i in value):
        raise InputError(f"mlp_only_layers is {value!r}: it must be a list of layer numbers")
    return tuple(value)
