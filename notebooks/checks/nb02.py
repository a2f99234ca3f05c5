"""Notebook 02: masks, shared heads, the bytes of keys and values, and attentions with one fault each."""

from collections.abc import Callable

import torch

from checks.exercise import Exercise
from checks.verdicts import exchanged, judging
from minillm.presets import PRESETS

# ---- who may look ----


def _mask(T: int, S: int) -> torch.Tensor:
    return torch.ones(T, S, dtype=torch.bool).tril(S - T)


def _mask_by_positions(T: int, S: int) -> torch.Tensor:
    return torch.arange(S)[None] <= torch.arange(S - T, S)[:, None]


causal_mask = Exercise(
    "causal mask",
    _mask_by_positions,
    ((4, 4), (3, 7), (1, 5), (2, 3)),
    {
        "Every token may look at every other. A new token must not see the ones after it.": (
            lambda T, S: torch.ones(T, S, dtype=torch.bool)
        ),
        "Right when S = T only. The new tokens are the last T of S, so their rows are the last T rows of the "
        "square: as it is, the first new token cannot see the tokens that came before it.": (
            lambda T, S: torch.ones(T, S, dtype=torch.bool).tril()
        ),
        "Off by one: a token may look at itself. With S = T the first row has nothing to look at, and its "
        "softmax would be NaN.": lambda T, S: torch.ones(T, S, dtype=torch.bool).tril(S - T - 1),
        "Off by one: the new tokens see one token of the future.": (
            lambda T, S: torch.ones(T, S, dtype=torch.bool).tril(S - T + 1)
        ),
        "The shift has the wrong sign: with S = 7 and T = 3 your rows end 4 places earlier than "
        "in a square. They should end 4 places later.": (
            lambda T, S: torch.ones(T, S, dtype=torch.bool).tril(T - S)
        ),
        "The wrong side: your tokens see themselves and the future, and not the past.": (
            lambda T, S: torch.ones(T, S, dtype=torch.bool).triu(S - T)
        ),
        "Upside down: it is True where looking is forbidden. In this course, as in PyTorch's "
        "scaled_dot_product_attention, True means: may look.": lambda T, S: ~_mask(T, S),
        "The shape is [S, T]. Rows are queries, the new tokens; columns are keys.": lambda T, S: (
            _mask(T, S).mT
        ),
        "The right places, but as numbers. A mask of numbers would be added to the scores; make it bool.": (
            lambda T, S: _mask(T, S).float()
        ),
        "The right places, but as whole numbers; make it bool.": lambda T, S: _mask(T, S).long(),
    },
)

# ---- grouped-query attention ----


def _by_groups(x: torch.Tensor, times: int) -> torch.Tensor:
    return x.repeat_interleave(times, 1)


def _in_turn(x: torch.Tensor, times: int) -> torch.Tensor:
    return torch.cat([x] * times, 1)


def _mix(
    q, k, v, mask, *, share=_by_groups, share_v=None, scale=None, axis=-1, hidden=-torch.inf, late=False
):
    """Grouped-query attention with a switch for each mistake."""
    shared = q.shape[1] // k.shape[1]
    k, v = share(k, shared), (share_v or share)(v, shared)
    scores = q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    if late:
        return (scores.softmax(axis) * mask) @ v
    return scores.masked_fill(~mask, hidden).softmax(axis) @ v


def _random(seed: int, B: int, T: int, S: int, H: int, K: int, D: int) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    shapes = (B, H, T, D), (B, K, S, D), (B, K, S, D)
    return *(torch.randn(shape, generator=generator) for shape in shapes), _mask(T, S)


grouped_attention = Exercise(
    "grouped-query attention",
    _mix,
    (
        _random(1, 2, 3, 5, 6, 2, 4),
        _random(2, 1, 4, 4, 4, 2, 16),
        _random(3, 3, 2, 6, 8, 4, 2),
        _random(4, 1, 2, 3, 3, 1, 5),
    ),
    {
        "No 1/√D: the scores are too large, so the softmax is too sure of itself.": (
            lambda q, k, v, mask: _mix(q, k, v, mask, scale=1.0)
        ),
        "You divide by D. It is √D: that is by how much a dot product of D terms spreads.": (
            lambda q, k, v, mask: _mix(q, k, v, mask, scale=1 / q.shape[-1])
        ),
        "You multiply by √D where the scores have to be divided by it.": (
            lambda q, k, v, mask: _mix(q, k, v, mask, scale=q.shape[-1] ** 0.5)
        ),
        "You divide by √T. It is √D: a dot product adds D terms, however many tokens there are.": (
            lambda q, k, v, mask: _mix(q, k, v, mask, scale=q.shape[-2] ** -0.5)
        ),
        "You divide by √S. It is √D: a dot product adds D terms, however many tokens there are.": (
            lambda q, k, v, mask: _mix(q, k, v, mask, scale=k.shape[-2] ** -0.5)
        ),
        "There are H query heads, but only K heads in k and v, so the shapes do not fit. Each key head "
        "serves H/K query heads.": lambda q, k, v, mask: _mix(q, k, v, mask, share=lambda x, times: x),
        "You copy along the batch, dimension 0 of [B, K, S, D]. It is the heads that are shared.": (
            lambda q, k, v, mask: _mix(q, k, v, mask, share=lambda x, times: x.repeat_interleave(times, 0))
        ),
        "The keys are shared rightly, the values are not: a share belongs to the value of the key that "
        "it was computed from.": lambda q, k, v, mask: _mix(q, k, v, mask, share_v=_in_turn),
        "The values are shared rightly, the keys are not: query head h uses key head h // (H / K).": (
            lambda q, k, v, mask: _mix(q, k, v, mask, share=_in_turn, share_v=_by_groups)
        ),
        "Query heads meet the wrong key heads: 0, 1, 0, 1 where 0, 0, 1, 1 is meant. Query head h uses key "
        "head h // (H / K). The shapes are the same, so nothing else will tell you.": (
            lambda q, k, v, mask: _mix(q, k, v, mask, share=_in_turn)
        ),
        "The softmax goes over the queries. Each query divides its attention among the keys: the weights of "
        "a row, over S, sum to one.": lambda q, k, v, mask: _mix(q, k, v, mask, axis=-2),
        "The softmax goes over the heads. Each head divides its own attention among the keys: the weights of "
        "a row, over S, sum to one.": lambda q, k, v, mask: _mix(q, k, v, mask, axis=1),
        "The mask comes after the softmax: hidden tokens still took their share, so the weights that are "
        "left do not sum to one.": lambda q, k, v, mask: _mix(q, k, v, mask, late=True),
        "Hidden scores are 0, and e⁰ is 1: a hidden token still takes a share. Which score gives a share of "
        "exactly 0?": lambda q, k, v, mask: _mix(q, k, v, mask, hidden=0.0),
        "The mask is not used: tokens see the future.": (
            lambda q, k, v, mask: _mix(q, k, v, torch.ones_like(mask))
        ),
        "The mask is upside down: it is True where a token may look.": (
            lambda q, k, v, mask: _mix(q, k, v, ~mask)
        ),
        "Your own causal mask is right when S = T only; use the one that is given. (PyTorch's is_causal=True "
        "counts from the upper left corner, too.)": (
            lambda q, k, v, mask: _mix(q, k, v, torch.ones_like(mask).tril())
        ),
        "The heads of the result are already joined. Here [B, H, T, D] is asked for.": (
            lambda q, k, v, mask: _mix(q, k, v, mask).transpose(1, 2).flatten(2)
        ),
        "Every head is right, but they still stand by groups, [B, K, H/K, T, D]: join the two to H.": (
            lambda q, k, v, mask: _mix(q, k, v, mask).unflatten(1, (k.shape[1], -1))
        ),
    },
)

# ---- bytes ----


def _token_bits(config, bits: int, heads: int | None = None, D: int | None = None) -> int:
    heads = config.num_key_value_heads if heads is None else heads
    return 2 * config.num_hidden_layers * heads * (D or config.head_dim) * bits


def _tokens(config, free_bytes: int, bits: int) -> int:
    return 8 * free_bytes // _token_bits(config, bits)


def _guessed_head_dim(config, free_bytes: int, bits: int) -> int:
    D = config.hidden_size // config.num_attention_heads
    return 8 * free_bytes // _token_bits(config, bits, D=D)


# Few tokens fit, so that rounding the wrong way shows.
tokens_that_fit = Exercise(
    "tokens that fit",
    _tokens,
    (
        (PRESETS["Qwen3-0.6B"], 5_000_000, 16),
        (PRESETS["Qwen3-32B"], 20_000_000, 8),
        (PRESETS["Qwen3-30B-A3B"], 3_000_000, 4),
    ),
    {
        "Keys and values are kept: times 2.": (
            lambda config, free, bits: 16 * free // _token_bits(config, bits)
        ),
        "Query heads are not stored: count num_key_value_heads.": (
            lambda config, free, bits: 8 * free // _token_bits(config, bits, config.num_attention_heads)
        ),
        "That is one layer. Each layer has keys and values of its own.": (
            lambda config, free, bits: 8 * free * config.num_hidden_layers // _token_bits(config, bits)
        ),
        "head_dim is a number of its own in Qwen3; hidden_size / num_attention_heads can be another one.": (
            _guessed_head_dim
        ),
        "Bits or bytes? Eight bits are one byte.": (
            lambda config, free, bits: free // _token_bits(config, bits)
        ),
        "`bits // 8` is 0 for 4 bits: multiply first, divide last.": (
            lambda config, free, bits: free // (_token_bits(config, 1) * (bits // 8))
        ),
        "You count two bytes a number, whatever `bits` says. With 8 or 4 bits a number more tokens fit.": (
            lambda config, free, bits: 8 * free // _token_bits(config, 16)
        ),
        "`free_bytes` is in bytes already; there is no GiB to convert.": (
            lambda config, free, bits: 8 * free * 2**30 // _token_bits(config, bits)
        ),
        "Whole tokens: round down.": lambda config, free, bits: 8 * free / _token_bits(config, bits),
        "You round up. Round down: a token that does not fit as a whole does not fit.": (
            lambda config, free, bits: -(-8 * free // _token_bits(config, bits))
        ),
        "You round to the nearest. Round down: a token that does not fit as a whole does not fit.": (
            lambda config, free, bits: round(8 * free / _token_bits(config, bits))
        ),
    },
)

# ---- one fault each, to be found without looking inside ----


def _suspect(mask: Callable = _mask, **fault) -> Callable:
    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return _mix(q[None], k[None], v[None], mask(q.shape[1], k.shape[1]), **fault)[0]

    return attention


# Each takes q [H, T, D] and k, v [K, T, D] and returns [H, T, D], causal.
suspects = {
    "A": _suspect(scale=1.0),
    "B": _suspect(axis=-2),
    "C": _suspect(),
    "D": _suspect(lambda T, S: torch.ones(T, S, dtype=torch.bool).tril(1)),
    "E": _suspect(share=_in_turn),
}
_VERDICTS = {"A": "scale", "B": "axis", "C": "none", "D": "mask", "E": "sharing"}
_EXPERIMENTS = {
    "A": "Try queries of zero, then others.",
    "B": "Try values that are all one.",
    "C": "Compare it with F.scaled_dot_product_attention.",
    "D": "Change the last token only, and see which outputs move.",
    "E": "Try a single token: whose value does each query head give back?",
}


verdicts = judging(
    "five suspects",
    _VERDICTS,
    _EXPERIMENTS,
    {
        "All the same? One of them is sound, and four have different faults.": (
            lambda: dict.fromkeys("ABCDE", "none")
        ),
        "B and D are exchanged. Values of one tell a wrong axis: what must come out? And with a wrong mask, "
        "and nothing else wrong, it does come out.": exchanged(_VERDICTS, "B", "D"),
        "A and E are exchanged. Give every key head the same keys and values: then sharing cannot be wrong, "
        "but a missing scale still is.": exchanged(_VERDICTS, "A", "E"),
    },
)
