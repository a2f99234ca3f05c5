"""What a result says about its machine."""

import subprocess
import sys
from functools import partial

import pytest
import torch

from experiments import machine
from minillm import ceilings


def test_description_names_versions_commit_and_bandwidth(monkeypatch):
    monkeypatch.setattr(ceilings, "measure", partial(ceilings.measure, 2**20, 1))
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=machine.ROOT, capture_output=True, text=True)
    found = machine.describe()
    assert found["torch"] == torch.__version__
    assert found["ceilings"]["host_copy_gb_s"] > 0
    if head.returncode == 0:
        assert found["commit"].startswith(head.stdout.strip())


@pytest.mark.parametrize(
    ("gpu", "name"),
    [
        ("NVIDIA H200", "h200"),
        ("NVIDIA GeForce RTX 3070 Laptop GPU", "rtx3070"),
        ("NVIDIA A100-SXM4-80GB", "a100sxm480gb"),
    ],
)
def test_gpu_gives_the_short_name(monkeypatch, gpu, name):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: gpu)
    assert machine.name() == name


def test_cores_give_the_name_without_a_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(machine.hardware, "cores", lambda: 6)
    assert machine.name() == "cpu6"


def test_command_shows_no_folder_of_this_machine(monkeypatch):
    monkeypatch.setenv("OUT", "/some/where")
    monkeypatch.setattr(sys, "argv", ["x.py", "--out", "/some/where", f"{machine.ROOT}/data", "two words"])
    command = machine.command()
    assert command.endswith("--out $OUT data 'two words'")
    assert str(machine.ROOT) not in command


def test_copy_without_git_takes_the_commit_it_is_told(monkeypatch):
    monkeypatch.setattr(machine, "_output", lambda *words: None)
    monkeypatch.delenv("MINILLM_COMMIT", raising=False)
    assert machine.commit() is None
    monkeypatch.setenv("MINILLM_COMMIT", "abc")
    assert machine.commit() == "abc"
