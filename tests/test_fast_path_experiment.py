"""The experiment on the fast path: what can be known of it without a GPU."""

import pytest
import torch

pytest.importorskip("triton", reason="Triton is made for Linux only")

from experiments import fast_path
from minillm.errors import RunError


class Stored:
    """Rows as `Results` gives them."""

    def __init__(self, rows: list[dict]):
        self.all = rows

    def rows(self, prefix: str = "") -> list[dict]:
        return [row for row in self.all if row["key"].startswith(prefix)]


def rows() -> list[dict]:
    """Four steps of a model, each twice as fast as the one before."""
    same = {"model": "8B", "new_tokens": 5, "graph_replays": 0}
    steps = [
        same | {"key": f"8B/{step}", "step": step, "tokens_per_s": 10.0 * 2**number}
        for number, step in enumerate(fast_path.STEPS)
    ]
    steps[-1]["graph_replays"] = 4
    return [*steps, {"key": "starts", "model": "8B", "cold_s": 61.0, "warm_s": 14.0}]


def test_each_step_is_judged_over_the_one_before():
    checks = {each["name"]: each for each in fast_path.judged(Stored(rows()))}
    assert checks["8B: one graph, tok/s over the step before"]["value"] == 2
    assert checks["8B: fast over eager"]["value"] == 8
    assert checks["8B: graph replays over tokens − 1"]["met"]
    assert not checks["8B: compiling and capturing, s, first time"]["met"]
    assert checks["8B: compiling and capturing, s, from the cache"]["met"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a device to measure on")
def test_without_a_gpu_it_says_so(tmp_path):
    with pytest.raises(RunError, match="for CUDA"):
        fast_path.main(["--device", "cpu", "--out", str(tmp_path)])
    assert list(tmp_path.iterdir()) == []
