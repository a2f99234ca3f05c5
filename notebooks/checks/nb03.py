"""Notebook 03: SwiGLU, counting parameters, routing, a broken layer."""

from dataclasses import replace
from math import prod

import torch.nn.functional as F

from checks import toy_layers
from checks.exercise import Exercise
from checks.toy_layers import numbers
from minillm.config import ModelConfig
from minillm.presets import PRESETS

# ---- 1. SwiGLU over joined matrices ----


def _swiglu(x, gate_up, down):
    gate, up = (x @ gate_up.T).chunk(2, -1)
    return (F.silu(gate) * up) @ down.T


def _with(combine):
    """SwiGLU with another way to bring gate and up together."""

    def mistake(x, gate_up, down):
        gate, up = (x @ gate_up.T).chunk(2, -1)
        return combine(gate, up) @ down.T

    return mistake


def _interleaved(x, gate_up, down):
    return (F.silu(x @ gate_up[0::2].T) * (x @ gate_up[1::2].T)) @ down.T


def _down_not_transposed(x, gate_up, down):
    gate, up = (x @ gate_up.T).chunk(2, -1)
    return (F.silu(gate) * up) @ down


swiglu = Exercise(
    "SwiGLU",
    _swiglu,
    (  # in the second case hidden = width, so that a forgotten transpose gives numbers instead of an error
        (numbers(3, 4, seed=0), numbers(10, 4, seed=1), numbers(4, 5, seed=2)),
        (numbers(2, 3, 4, seed=3), numbers(8, 4, seed=4), numbers(4, 4, seed=5)),
    ),
    {
        "silu belongs to the gate, the first half; you bent up.": _with(lambda g, u: g * F.silu(u)),
        "That is the sigmoid of the gate. silu(z) is z · sigmoid(z).": _with(lambda g, u: g.sigmoid() * u),
        "relu has a hard knee; Qwen3 was trained with silu.": _with(lambda g, u: F.relu(g) * u),
        "Gate and up are multiplied, number by number, and not added.": _with(lambda g, u: F.silu(g) + u),
        "The gate is not bent: without silu this is only a product of two views.": _with(lambda g, u: g * u),
        "Where is up? The gate alone decides nothing: it scales what up says.": _with(lambda g, u: F.silu(g)),
        "silu is taken of the gate before the product with up, not of the product.": _with(
            lambda g, u: F.silu(g * u)
        ),
        "The first half of the rows is gate, the second half up; they do not alternate.": _interleaved,
        "`down` is [hidden, width]: as for gate and up, each row makes one output.": _down_not_transposed,
    },
)


# ---- 2. parameters of a whole model ----


def _parameters(config, *, head_dim=None, kv=None, matrices=3, norms=True, qk_norms=True, tables=None):
    hidden, D = config.hidden_size, head_dim or config.head_dim
    kv_heads = config.num_key_value_heads if kv is None else kv(config)
    attention = 2 * hidden * D * (config.num_attention_heads + kv_heads)
    per_layer = attention + matrices * hidden * config.intermediate_size
    per_layer += (2 * hidden if norms else 0) + (2 * D if norms and qk_norms else 0)
    copies = tables(config) if tables else 1 if config.tie_word_embeddings else 2
    around = copies * config.vocab_size * hidden + (hidden if norms else 0)
    return config.num_hidden_layers * per_layer + around


def _one_kv_matrix(config):
    return config.num_key_value_heads / 2


def _without_last_norm(config):
    return _parameters(config) - config.hidden_size


# Small vocabularies and odd sizes, so that even a forgotten norm shows.
_TOY = ModelConfig(
    vocab_size=11, hidden_size=6, intermediate_size=7, num_hidden_layers=3, num_attention_heads=2,
    num_key_value_heads=1, head_dim=4, tie_word_embeddings=True,
)  # fmt: skip

parameters = Exercise(
    "parameters of a model",
    _parameters,
    ((_TOY,), (replace(_TOY, tie_word_embeddings=False, num_attention_heads=4),), (PRESETS["Qwen3-0.6B"],)),
    {
        "The size of a head is `config.head_dim`. hidden ÷ heads is another number.": (
            lambda config: _parameters(config, head_dim=config.hidden_size // config.num_attention_heads)
        ),
        "k and v have fewer heads than q: that is what GQA saves.": (
            lambda config: _parameters(config, kv=lambda c: c.num_attention_heads)
        ),
        "Keys and values have a matrix each; one of them is missing.": (
            lambda config: _parameters(config, kv=_one_kv_matrix)
        ),
        "SwiGLU has three matrices: gate, up and down.": lambda config: _parameters(config, matrices=2),
        "A tied head is the embedding itself: it is stored once.": (
            lambda config: _parameters(config, tables=lambda c: 2)
        ),
        "An untied head is stored beside the embedding.": (
            lambda config: _parameters(config, tables=lambda c: 1)
        ),
        "The norms are missing: they are few, but they are parameters.": (
            lambda config: _parameters(config, norms=False)
        ),
        "Queries and keys have a norm each in every layer, of head_dim numbers.": (
            lambda config: _parameters(config, qk_norms=False)
        ),
        "One norm stands after the last layer.": _without_last_norm,
        "That is one layer; a model has `num_hidden_layers` of them.": (
            lambda config: _parameters(replace(config, num_hidden_layers=1))
        ),
    },
)


# ---- 3. the router ----


def _route(scores, k, renormalise):
    weights, chosen = scores.softmax(-1).topk(k, -1)
    return (weights / weights.sum(-1, keepdim=True) if renormalise else weights), chosen


def _top_k_first(scores, k, renormalise):
    best, chosen = scores.topk(k, -1)
    return best.softmax(-1), chosen


def _softmax_again(scores, k, renormalise):
    weights, chosen = scores.softmax(-1).topk(k, -1)
    return (weights.softmax(-1) if renormalise else weights), chosen


def _summed_over_tokens(scores, k, renormalise):
    weights, chosen = scores.softmax(-1).topk(k, -1)
    return (weights / weights.sum(0, keepdim=True) if renormalise else weights), chosen


def _summed_over_all(scores, k, renormalise):
    weights, chosen = scores.softmax(-1).topk(k, -1)
    return (weights / weights.sum() if renormalise else weights), chosen


def _softmax_over_tokens(scores, k, renormalise):
    weights, chosen = scores.softmax(0).topk(k, -1)
    return (weights / weights.sum(-1, keepdim=True) if renormalise else weights), chosen


def _weakest(scores, k, renormalise):
    weights, chosen = scores.softmax(-1).topk(k, -1, largest=False)
    return (weights / weights.sum(-1, keepdim=True) if renormalise else weights), chosen


def _no_softmax(scores, k, renormalise):
    weights, chosen = scores.topk(k, -1)
    return (weights / weights.sum(-1, keepdim=True) if renormalise else weights), chosen


_SCORES = numbers(5, 7, seed=6)  # [N, experts]

route = Exercise(
    "router",
    _route,
    ((_SCORES, 3, False), (_SCORES, 3, True), (2 * _SCORES[:4, :6], 2, True), (_SCORES[:2], 4, False)),
    {
        "The softmax runs over all experts, before the k are taken; look at `renormalise`, too.": (
            _top_k_first  # the same numbers as renormalising always
        ),
        "Not renormalised: the k weights of a token must sum to one when `renormalise` is true.": (
            lambda scores, k, renormalise: _route(scores, k, False)
        ),
        "Renormalise by dividing by the sum. A second softmax makes them nearly equal.": _softmax_again,
        "Each token's weights sum to one: the sum runs over its experts, not over the tokens.": (
            _summed_over_tokens
        ),
        "Each token's weights sum to one: divide by a sum of its own, not by one for all.": _summed_over_all,
        "First the weights, then the numbers of the experts.": (
            lambda scores, k, renormalise: _route(scores, k, renormalise)[::-1]
        ),
        "The softmax runs over the experts of one token; yours runs over the tokens.": _softmax_over_tokens,
        "Those are the k experts with the lowest scores.": _weakest,
        "Each token gets k experts; yours gets one.": lambda scores, k, renormalise: _route(
            scores, 1, renormalise
        ),
        "The scores can be negative: weights come from their softmax.": _no_softmax,
    },
)


# ---- 4. active parameters ----


def _active(config, *, resting=True, everywhere=False, router=True, rows=False, without=()):
    total = 0
    for name, shape in config.parameter_shapes().items():
        if any(word in name for word in ("embed_tokens", *without)) and not rows:
            continue
        size = prod(shape)
        shared = (everywhere and "layers" in name) or ".experts." in name
        shared |= not router and name.endswith("mlp.gate.weight")
        if resting and shared:
            size = size * config.num_experts_per_tok // config.num_experts
        total += size
    return total


_TOY_MOE = replace(
    PRESETS["Qwen3-30B-A3B"], vocab_size=40, hidden_size=16, num_hidden_layers=3, num_attention_heads=3,
    num_key_value_heads=1, head_dim=8, num_experts=12, num_experts_per_tok=3, moe_intermediate_size=6,
)  # fmt: skip

active_parameters = Exercise(
    "active parameters",
    _active,
    ((_TOY_MOE,), (replace(_TOY_MOE, num_experts_per_tok=4),), (PRESETS["Qwen3-30B-A3B"],)),
    {
        "Those are all experts. A token uses num_experts_per_tok of them.": (
            lambda config: _active(config, resting=False)
        ),
        "Only the experts are chosen. Attention and norms are used by every token, in full.": (
            lambda config: _active(config, everywhere=True)
        ),
        "The router is read in full: it needs the scores of all experts to choose.": (
            lambda config: _active(config, router=False)
        ),
        "The embedding is in it; of that a token reads one row, so leave it out.": (
            lambda config: _active(config, rows=True)
        ),
        "The head is missing: it is read for every new token.": (
            lambda config: _active(config, without=("lm_head",))
        ),
        "Those are the experts alone. Attention, router, norms and head work for every token, too.": (
            lambda config: _active(config, without=("lm_head", "self_attn", "norm", "mlp.gate."))
        ),
    },
)


# ---- 5. a broken layer ----


layer = Exercise(
    "decoder layer",
    toy_layers.layer,
    (toy_layers.pieces(6, seed=10), toy_layers.pieces(3, seed=20)),
    {
        "That is the broken layer as it was: both faults are still in it.": toy_layers.broken,
        "One fault is mended. The second norm still stands after the MLP instead of before it.": (
            toy_layers.norm_still_after
        ),
        "One fault is mended. The stream itself is still normed at the start: "
        "norm only what the attention reads.": toy_layers.stream_still_normed,
        "In the second block the stream itself is normed: add to what was there before.": (
            toy_layers.both_normed
        ),
        "The MLP must read the stream after attention has added to it.": toy_layers.side_by_side,
        "Each block has a norm of its own, with weights of its own; norm_2 is not used.": toy_layers.one_norm,
        "Nothing is added: without the residual each block replaces the stream.": toy_layers.no_residual,
        "What attention computed reaches the MLP but is not added to the stream.": toy_layers.old_residual,
        "The second norm stands before the MLP and not after it, too.": toy_layers.norm_before_and_after,
        "The MLP reads the stream without its norm.": toy_layers.no_second_norm,
    },
)
