"""The block of host memory on systems that refuse what it asks for."""

import errno
import mmap

import pytest
import torch

from minillm.arena import HostArena
from minillm.errors import RunError


@pytest.fixture
def asked(monkeypatch):
    """What a system without huge pages was asked for; it answers as madvise(2) says, with EINVAL."""
    advice = []

    class Refusing(mmap.mmap):
        def madvise(self, *arguments):
            advice.append(arguments)
            raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(mmap, "mmap", Refusing)
    return advice


@pytest.mark.skipif(not hasattr(mmap, "MADV_HUGEPAGE"), reason="this system has no such advice")
def test_huge_pages_are_only_a_wish(asked):
    arena = HostArena(10_000)
    assert asked == [(mmap.MADV_HUGEPAGE,)]
    arena.touch()
    piece = arena.take(4096)
    piece.fill_(7)
    assert torch.equal(arena.memory[:4097], torch.tensor([7] * 4096 + [0], dtype=torch.uint8))
    arena.close()


def test_memory_that_the_system_refuses_is_one_line():
    """More than any process can address."""
    with pytest.raises(RunError, match=r"cannot take 1048576\.00 GiB of host memory .*ulimit -v") as caught:
        HostArena(1 << 50)
    assert "\n" not in str(caught.value)
    HostArena(1 << 20).close()
