"""`ceilings`: which link a speed belongs to."""

import json

from command_line import succeeds

from minillm import block_times, ceilings
from minillm.block_times import BlockTimes
from minillm.ceilings import Ceilings

MACHINE = Ceilings(
    cpu="a processor",
    cores=2,
    threads=1,
    host_memory_bytes=2**30,
    host_copy_gb_s=20.0,
    host_matvec_float32_gb_s=20.0,
    host_matvec_bfloat16_gb_s=10.0,
)


def test_the_link_of_a_cpu_is_named_emulated(capsys, monkeypatch):
    times = BlockTimes(link_gb_s=6.2, attention_s=0.001, mlp_s=0.002, head_s=0.003)
    monkeypatch.setattr(ceilings, "measure", lambda: MACHINE)
    monkeypatch.setattr(block_times, "measure", lambda *_, **__: times)
    ask = ("ceilings", "random:Qwen3-0.6B", "--device", "cpu")
    lines = [" ".join(line.split()) for line in succeeds(capsys, *ask).splitlines()]
    assert [line for line in lines if line.startswith("link_gb_s")] == [
        "link_gb_s -",
        "link_gb_s (emulated) 6.2 GB/s",
    ]
    found = json.loads(succeeds(capsys, *ask, "--json"))
    assert found["random:Qwen3-0.6B"] == times.as_dict()
