"""Bytes and rates as text: GiB is 2^30 bytes (memory), GB is 10^9 bytes (links and bandwidth)."""

GIB = 2**30
MIB = 2**20
GB = 10**9


def gib(num_bytes: int) -> str:
    """A memory size, "15.26 GiB"; below 1 GiB in MiB, "12.0 MiB"."""
    if abs(num_bytes) >= GIB:
        return f"{num_bytes / GIB:.2f} GiB"
    return f"{num_bytes / MIB:.1f} MiB"


def gb_s(bytes_per_second: float) -> str:
    """A bandwidth, "54.7 GB/s"."""
    return f"{bytes_per_second / GB:.1f} GB/s"
