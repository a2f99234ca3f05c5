"""Memory: what a model needs, from its configuration alone, and what this machine has left. No torch.

The sizes of weights and KV cache are exact for the resident placement (a test holds them to the real
tensors); the workspace of a prefill is an estimate.
"""

import os
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from pathlib import Path

from minillm.config import ModelConfig
from minillm.errors import RunError
from minillm.geometry import ALIGNMENT, CHUNK, block_shapes
from minillm.quant.layout import block_layout
from minillm.units import gib

FLOAT_OF = {2: "bfloat16", 4: "float32"}  # a type of so many bytes
PROC, CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")


@dataclass(frozen=True, kw_only=True)
class MemoryPlan:
    """Bytes by what they hold, all weights resident."""

    embedding: int
    attention_blocks: tuple[int, ...]  # one a layer
    mlp_blocks: tuple[int, ...]  # one a layer, experts included
    head: int  # 0 when tied: the embedding serves
    norm: int
    kv_per_token: int  # of one sequence, all layers
    kv_tokens: int  # max_model_len × batch
    workspace: int  # estimate: buffers of a prefill at max_model_len

    @property
    def layers(self) -> int:
        return sum(self.attention_blocks) + sum(self.mlp_blocks)

    @property
    def weights(self) -> int:
        return self.embedding + self.layers + self.head + self.norm

    @property
    def kv(self) -> int:
        return self.kv_per_token * self.kv_tokens

    @property
    def total(self) -> int:
        return self.weights + self.kv + self.workspace


def plan(config: ModelConfig, dtype_bytes: int, max_model_len: int, batch: int = 1) -> MemoryPlan:
    """Bytes for `batch` sequences of `max_model_len` tokens, at `dtype_bytes` an element."""
    table = config.vocab_size * config.hidden_size * dtype_bytes
    layers = range(config.num_hidden_layers)
    return MemoryPlan(
        embedding=table,
        attention_blocks=tuple(block_bytes(config, i, "attention", dtype_bytes) for i in layers),
        mlp_blocks=tuple(block_bytes(config, i, "mlp", dtype_bytes) for i in layers),
        head=0 if config.tie_word_embeddings else table,
        norm=config.hidden_size * dtype_bytes,
        kv_per_token=kv_bytes_per_token(config, dtype_bytes),
        kv_tokens=max_model_len * batch,
        workspace=workspace_bytes(config, dtype_bytes, max_model_len, batch),
    )


@lru_cache(maxsize=8192)  # asked for over and over, and a block of experts has hundreds of matrices
def block_bytes(config: ModelConfig, index: int, part: str, dtype_bytes: int) -> int:
    """Bytes of one residual block of layer `index`, `part` "attention" or "mlp", alignment included."""
    shapes, formats = block_shapes(config, index, part), config.formats(index, part)
    if formats:
        return block_layout(shapes, formats, FLOAT_OF[dtype_bytes]).num_bytes
    sizes = [prod(shape) * dtype_bytes for shape in shapes.values()]
    return sum(-(-size // ALIGNMENT) * ALIGNMENT for size in sizes)


def kv_bytes_per_token(config: ModelConfig, dtype_bytes: int) -> int:
    """Keys and values of one token in every layer."""
    return 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim * dtype_bytes


def workspace_bytes(config: ModelConfig, dtype_bytes: int, tokens: int, batch: int = 1) -> int:
    """Estimate of what a prefill of `tokens` holds at its widest point beside weights and cache.

    The residual stream and the float32 rotations of all tokens; of a chunk its norm and result, and either
    q, k, v, q normalised and, while it is rotated, three of it in float32, or gate and up, silu and product;
    logits of the last token, in the model's dtype and in float32.
    """
    H, K, D = config.num_attention_heads, config.num_key_value_heads, config.head_dim
    attention = ((2 * H + 2 * K) * dtype_bytes + 3 * H * 4) * D
    width = max(config.intermediate_size, config.num_experts_per_tok * config.moe_intermediate_size)
    stream = 2 * config.hidden_size * dtype_bytes
    chunk = min(tokens, CHUNK) * (stream + max(attention, 4 * width * dtype_bytes))
    return batch * (tokens * (stream + 2 * D * 4) + chunk + config.vocab_size * (dtype_bytes + 4))


# ---- what the machine has ----


def check_fits(
    needed: int,
    available: int | None,
    what: str,
    remedy: str = "lower max_model_len or choose a smaller model",
) -> None:
    """Raise RunError when `needed` bytes exceed `available` (None: unknown, so not checked)."""
    if available is not None and needed > available:
        raise RunError(f"{what} needs {gib(needed)} of memory, {gib(available)} are available: {remedy}")


def available_bytes(proc: Path = PROC, cgroups: Path = CGROUPS) -> int | None:
    """Main memory that can still be taken: what the kernel says, or a container's limit if that is less.

    Without /proc (macOS) all physical memory; None where nothing can be asked.
    """
    left = [limit - used for limit, used in _cgroup_limits(proc / "self/cgroup", cgroups)]
    free = _meminfo(proc / "meminfo", "MemAvailable:")
    known = [max(0, size) for size in left] + ([] if free is None else [free])
    return min(known) if known else _physical()


def total_bytes(proc: Path = PROC, cgroups: Path = CGROUPS) -> int | None:
    """Main memory that this process may use: the machine's, or its container's limit if that is less."""
    limits = [limit for limit, _ in _cgroup_limits(proc / "self/cgroup", cgroups)]
    total = _meminfo(proc / "meminfo", "MemTotal:") or _physical()
    return min(limits + ([] if total is None else [total]), default=None)


def _meminfo(path: Path, name: str) -> int | None:
    for line in _lines(path):
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    return None


def _cgroup_limits(membership: Path, root: Path) -> list[tuple[int, int]]:
    """Limit and use, in bytes, of each cgroup with a limit that this process is in, parents included."""
    found = []
    for line in _lines(membership):
        _, controllers, group = line.split(":", 2)
        if controllers in ("", "memory"):
            version2 = controllers == ""
            base = root if version2 else root / "memory"
            folder = base / group.strip().lstrip("/")
            for place in (folder, *folder.parents):
                if place.is_relative_to(base):
                    found.append(_limit_and_use(place, version2))
    return [pair for pair in found if pair is not None]


def _limit_and_use(folder: Path, version2: bool) -> tuple[int, int] | None:
    names = (
        ("memory.max", "memory.current") if version2 else ("memory.limit_in_bytes", "memory.usage_in_bytes")
    )
    limit, used = (" ".join(_lines(folder / name)).strip() for name in names)
    if not limit.isdigit() or not used.isdigit():  # absent, or "max"
        return None
    # Pages of files that nobody uses count as used, yet the kernel gives them back on demand.
    key = "inactive_file" if version2 else "total_inactive_file"
    stat = dict(line.split() for line in _lines(folder / "memory.stat"))
    return int(limit), int(used) - int(stat.get(key, 0))


def _physical() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
