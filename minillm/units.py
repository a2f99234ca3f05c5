"""Bytes and rates as text: GiB is 2^30 bytes (memory), GB is 10^9 bytes (links and bandwidth)."""

GIB = 2**30
MIB = 2**20
KIB = 2**10
GB = 10**9


def gib(num_bytes: int) -> str:
    """A memory size, "15.26 GiB"; smaller ones in MiB, "12.0 MiB", KiB, "4.0 KiB", or bytes, "12 B"."""
    if abs(num_bytes) >= GIB:
        return f"{num_bytes / GIB:.2f} GiB"
    if abs(num_bytes) >= MIB:
        return f"{num_bytes / MIB:.1f} MiB"
    return f"{num_bytes / KIB:.1f} KiB" if abs(num_bytes) >= KIB else f"{num_bytes} B"


def gb_s(bytes_per_second: float) -> str:
    """A bandwidth, "54.7 GB/s"."""
    return f"{bytes_per_second / GB:.1f} GB/s"


def short(value: float) -> str:
    """Two or three digits that can be read at a glance: 0.31, 5.6, 42, 1,704."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}" if value >= 1 else f"{value:.2f}"
