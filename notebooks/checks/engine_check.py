"""Which part of a Qwen3 engine is wrong: each is tried by itself, from the bottom up (notebook 06)."""

from collections.abc import Callable
from functools import cache

import torch
import torch.nn.functional as F

from checks.broken_engine import Engine
from minillm import LLM, ModelConfig
from minillm.attention import attend
from minillm.norm import rms_norm
from minillm.rope import Rope
from minillm.rope_config import RopeConfig

# The parts are tried with another model's numbers, so that a constant which fits `tiny` alone does not pass.
OTHER = ModelConfig(
    vocab_size=50, hidden_size=40, intermediate_size=12, num_hidden_layers=1, num_attention_heads=8,
    num_key_value_heads=2, head_dim=16, rms_norm_eps=1e-5, rope=RopeConfig(rope_theta=300_000.0),
)  # fmt: skip
TEXT = "Once upon a time there was a fox. Q: 23 + 45 = ?\nA:"
CLOSE = 1e-4  # relative RMS; correct parts differ by 1e-7, the smallest of these bugs by more than 1e-3


@cache
def _tiny() -> LLM:
    return LLM("tiny", device="cpu", dtype="float32")


def engine_of(kind: type[Engine]) -> Engine:
    """An engine of that class with the weights of `tiny`."""
    weights = {name: parameter.detach() for name, parameter in _tiny().model.named_parameters()}
    return kind(weights, _tiny().config)


def first_wrong_part(answer: Callable) -> str:
    """The first part, bottom-up, that does not do what ours does with the same input; "none"."""
    kind = answer()
    if not isinstance(kind, type) or not issubclass(kind, Engine):
        raise TypeError("return a class derived from broken_engine.Engine, not an engine made from it")
    parts = kind({}, OTHER)
    generator = torch.Generator().manual_seed(6)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator)

    x, weight = 1e-2 * draw(5, 9), draw(9)
    if not close(parts.norm(x, weight), rms_norm(x, weight, OTHER.rms_norm_eps)):
        return "norm"
    D = OTHER.head_dim
    return (
        _wrong_in_rotation(parts, draw(3, 7, D))
        or _wrong_in_attention(parts, draw(8, 6, D), draw(2, 6, D), draw(2, 6, D))
        or _wrong_in_mlp(parts, draw(5, 8), draw(12, 8), draw(12, 8), draw(8, 12))
        or _wrong_as_a_whole(engine_of(kind))
        or "none"
    )


def _wrong_in_rotation(engine: Engine, x: torch.Tensor) -> str | None:
    got, half = engine.rotate(x), x.shape[-1] // 2
    positions = torch.arange(x.shape[1])[None]
    expected = Rope(OTHER.rope, x.shape[-1]).at(positions).apply(x[None])[0]
    if got.shape != x.shape:
        return "rotation: shape"
    if not close(got[:, 0], x[:, 0]):
        return "rotation: first position"
    lengths = [t.unflatten(-1, (2, half)).norm(dim=-2) for t in (got, x)]
    if not close(*lengths):
        return "rotation: pairs"
    return None if close(got, expected) else "rotation: angles"


def _wrong_in_attention(engine: Engine, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> str | None:
    # A token that is alone looks at itself, whatever scale and mask are: what remains is whose value it gets.
    alone = engine.attend(q[:, :1], k[:, :1], v[:, :1])
    if alone.shape != q[:, :1].shape:
        return "attention: shape"
    if alone.isnan().any():  # a softmax over nothing
        return "attention: mask"
    if not close(alone, v[:, :1].repeat_interleave(len(q) // len(v), 0)):
        return "attention: order of heads"
    got = engine.attend(q, k, v)
    # What comes later must not matter: the first tokens get the same with and without the last ones.
    if not close(got[:, :3], engine.attend(q[:, :3], k[:, :3], v[:, :3])):
        return "attention: mask"
    # With equal keys every score is the same, and the average is over the tokens that may be seen.
    flat = torch.ones_like(k)
    if not close(engine.attend(q, flat, v), _right_attention(q, flat, v)):
        return "attention: mask"
    return None if close(got, _right_attention(q, k, v)) else "attention: scale"


def _right_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return attend(q[None], k[None], v[None], None)[0].unflatten(-1, (len(q), -1)).transpose(0, 1)


def _wrong_in_mlp(engine: Engine, x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor):
    expected = F.linear(F.silu(x @ gate.T) * (x @ up.T), down)
    return None if close(engine.mlp(x, gate, up, down), expected) else "mlp"


def _wrong_as_a_whole(engine: Engine) -> str | None:
    ids = _tiny().tokenizer.encode(TEXT)
    return None if close(engine.logits(ids), _tiny().logits(ids)) else "whole"


def close(ours: torch.Tensor, exact: torch.Tensor) -> bool:
    """Equal up to float32 rounding."""
    return ours.shape == exact.shape and ((ours - exact).norm() <= CLOSE * exact.norm()).item()
