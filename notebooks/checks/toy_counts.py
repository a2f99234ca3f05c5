"""Parameters of a model, counted in one right and many wrong ways; the check says how far a count is off."""

from dataclasses import dataclass, replace
from math import prod
from typing import Any

from checks.exercise import Exercise, Trial, same
from minillm.config import ModelConfig
from minillm.presets import PRESETS


@dataclass(frozen=True)
class Count(Exercise):
    """An exercise whose answer is a whole number for a configuration."""

    def _hint(self, given: list[Trial]) -> str:
        """The hint of a known mistake; else how far the first wrong count is off, and for which model."""
        known = super()._hint(given)
        if known:
            return known
        for mine, right in zip(given, self._trials(self.solution), strict=True):
            if not same(mine.outcome, right.outcome) and isinstance(mine.outcome, int | float):
                return f": {_off(mine.outcome, right.outcome)} for {described(*mine.case)}."
        return ""


def whole(answer, config: ModelConfig) -> Any:
    """What the answer gives; 924.0 counts as 924, so that a float is compared as exactly as an int."""
    number = answer(config)
    return int(number) if isinstance(number, float) and number.is_integer() else number


def _off(number: float, right: int) -> str:
    shown = f"{number:,}"
    return f"it gave {shown}, {abs(number - right):,} too {'few' if number < right else 'many'},"


def described(config: ModelConfig) -> str:
    """The sizes from which its parameters can be counted on paper."""
    mlp = f"width {config.intermediate_size}"
    if config.num_experts:
        mlp = f"{config.num_experts} experts of width {config.moe_intermediate_size}"
        mlp += f", top {config.num_experts_per_tok}"
    heads = f"{config.num_attention_heads} query and {config.num_key_value_heads} key/value heads"
    tied = "tied" if config.tie_word_embeddings else "untied"
    return (
        f"hidden {config.hidden_size}, {config.num_hidden_layers} layers, {mlp}, "
        f"{heads} of {config.head_dim}, vocabulary {config.vocab_size}, {tied}"
    )


# ---- all parameters of a dense model ----

# Small vocabularies and odd sizes, so that even a forgotten norm shows.
TOY = ModelConfig(
    vocab_size=11, hidden_size=6, intermediate_size=7, num_hidden_layers=3, num_attention_heads=2,
    num_key_value_heads=1, head_dim=4, tie_word_embeddings=True,
)  # fmt: skip
DENSE = ((TOY,), (replace(TOY, tie_word_embeddings=False, num_attention_heads=4),), (PRESETS["Qwen3-0.6B"],))


def parameters(config, *, head_dim=None, kv=None, matrices=3, per_layer=0, around=0, tables=None):
    """`per_layer` and `around`: what is counted too much in each layer and outside the layers."""
    hidden, D = config.hidden_size, head_dim or config.head_dim
    kv_heads = config.num_key_value_heads if kv is None else kv(config)
    layer = 2 * hidden * D * (config.num_attention_heads + kv_heads)
    layer += matrices * hidden * config.intermediate_size + 2 * hidden + 2 * D + per_layer
    copies = tables(config) if tables else 1 if config.tie_word_embeddings else 2
    return round(config.num_hidden_layers * layer + copies * config.vocab_size * hidden + hidden + around)


def _missing(per_layer=None, around=None):
    """The count without some parameters of each layer, and without some outside the layers."""

    def mistake(config):
        inside, outside = (part(config) if part else 0 for part in (per_layer, around))
        return parameters(config, per_layer=-inside, around=-outside)

    return mistake


def _heads(config):
    return config.num_attention_heads * config.head_dim


def _hidden(config):
    return config.hidden_size


def _norms(config):
    return 2 * config.hidden_size + 2 * config.head_dim


PARAMETER_MISTAKES = {
    "The size of a head is `config.head_dim`. hidden ÷ heads is another number.": (
        lambda config: parameters(config, head_dim=config.hidden_size // config.num_attention_heads)
    ),
    "q and o are hidden × H·D. H·D is not hidden: a model is free to make it larger.": (
        lambda config: parameters(
            config, per_layer=2 * config.hidden_size * (config.hidden_size - _heads(config))
        )
    ),
    "k and v have fewer heads than q: that is what GQA saves.": (
        lambda config: parameters(config, kv=lambda c: c.num_attention_heads)
    ),
    "Keys and values have a matrix each; one of them is missing.": (
        lambda config: parameters(config, kv=lambda c: c.num_key_value_heads / 2)
    ),
    "Attention has four matrices: what the heads found goes through o, back to hidden.": (
        _missing(lambda config: config.hidden_size * _heads(config))
    ),
    "SwiGLU has three matrices: gate, up and down.": lambda config: parameters(config, matrices=2),
    "Tied and untied are exchanged: a tied head is the embedding and is stored once.": (
        lambda config: parameters(config, tables=lambda c: 2 if c.tie_word_embeddings else 1)
    ),
    "A tied head is the embedding itself: it is stored once.": lambda config: parameters(
        config, tables=lambda c: 2
    ),
    "An untied head is stored beside the embedding.": lambda config: parameters(config, tables=lambda c: 1),
    "The embedding is missing, and with it the head.": lambda config: parameters(config, tables=lambda c: 0),
    "The norms are missing: they are few, but they are parameters.": _missing(_norms, _hidden),
    "The norms of the layers are missing: four in each.": _missing(_norms),
    "Queries and keys have a norm each in every layer, of head_dim numbers.": (
        _missing(lambda config: 2 * config.head_dim)
    ),
    "Three norms are missing: of queries and of keys in every layer, and the one after the last layer.": (
        _missing(lambda config: 2 * config.head_dim, _hidden)
    ),
    "Queries and keys have a norm each; one of them is missing.": _missing(lambda config: config.head_dim),
    "Queries and keys have one norm each in a layer, which all heads share.": (
        lambda config: parameters(
            config,
            per_layer=config.head_dim * (config.num_attention_heads + config.num_key_value_heads - 2),
        )
    ),
    "Each layer has two norms of hidden numbers, one before attention and one before the MLP.": _missing(
        _hidden
    ),
    "The two norms of hidden numbers in each layer are missing: before attention and before the MLP.": (
        _missing(lambda config: 2 * config.hidden_size)
    ),
    "One norm stands after the last layer.": _missing(None, _hidden),
    "That is one layer; a model has `num_hidden_layers` of them.": (
        lambda config: parameters(replace(config, num_hidden_layers=1))
    ),
}


# ---- active parameters of a mixture of experts ----

TOY_MOE = replace(
    PRESETS["Qwen3-30B-A3B"], vocab_size=40, hidden_size=16, num_hidden_layers=3, num_attention_heads=3,
    num_key_value_heads=1, head_dim=8, num_experts=12, num_experts_per_tok=3, moe_intermediate_size=6,
)  # fmt: skip
MIXED = ((TOY_MOE,), (replace(TOY_MOE, num_experts_per_tok=4),), (PRESETS["Qwen3-30B-A3B"],))


def active(config, *, chosen=None, shared=(".experts.",), without=("embed_tokens",)):
    """Of the names with a word of `shared`, `chosen` experts of all count; those of `without` do not."""
    chosen = config.num_experts_per_tok if chosen is None else chosen
    total = 0
    for name, shape in config.parameter_shapes().items():
        if not any(word in name for word in without):
            part = any(word in name for word in shared)
            total += prod(shape) * chosen // config.num_experts if part else prod(shape)
    return total


ACTIVE_MISTAKES = {
    "Those are all experts. A token uses num_experts_per_tok of them.": (
        lambda config: active(config, chosen=config.num_experts)
    ),
    "That is every stored parameter. A token reads one row of the embedding and few of the experts.": (
        lambda config: active(config, chosen=config.num_experts, without=())
    ),
    "That is one expert a layer. A token uses num_experts_per_tok of them.": lambda config: active(
        config, chosen=1
    ),
    "The experts are missing. (k // experts, in whole numbers, is 0.)": lambda config: active(
        config, chosen=0
    ),
    "Only the experts are chosen. Attention and norms are used by every token, in full.": (
        lambda config: active(config, shared=("layers",))
    ),
    "The router is read in full: it needs the scores of all experts to choose.": (
        lambda config: active(config, shared=(".experts.", "mlp.gate."))
    ),
    "The router is left out: it is small, but every token reads it.": (
        lambda config: active(config, without=("embed_tokens", "mlp.gate."))
    ),
    "The norms are left out: they are few, but every token reads them.": (
        lambda config: active(config, without=("embed_tokens", "norm"))
    ),
    "The embedding is in it; of that a token reads one row, so leave it out.": (
        lambda config: active(config, without=())
    ),
    "The head is missing: it is read for every new token.": (
        lambda config: active(config, without=("embed_tokens", "lm_head"))
    ),
    "Those are the experts alone. Attention, router, norms and head work for every token, too.": (
        lambda config: active(config, without=("embed_tokens", "lm_head", "self_attn", "norm", "mlp.gate."))
    ),
}
