"""`plan` against figures worked out by hand, and `download` followed by `generate` from a hub."""

import re
from pathlib import Path

import pytest
from command_line import CONTEXT, fails, good_model, succeeds
from stand_in_hub import StandInHub

from minillm import memory, transfer
from minillm.__main__ import main
from minillm.units import gib

MODEL = "someone/small"


def rows(printed: str) -> dict[str, str]:
    return dict(re.split(r"\s{2,}", line, maxsplit=1) for line in printed.splitlines())


def test_plan_of_qwen3_8b(capsys):
    plan = rows(succeeds(capsys, "plan", "random:Qwen3-8B", "--max-model-len", "8192"))
    # Attention 4096 × (4096 + 1024 + 1024 + 4096), MLP 3 × 4096 × 12288, two bytes each.
    assert plan["one layer"] == "368.0 MiB (attention 80.0 MiB, MLP 288.0 MiB)"
    assert plan["parameters"] == "8,190,735,360"
    assert plan["embedding"] == plan["head"] == "1.16 GiB"
    assert plan["KV cache"] == "147,456 bytes a token, 1.12 GiB for 8,192 tokens"
    assert plan["layers"] == "36 of width 4096"


def test_plan_follows_the_dtype_and_says_where_the_head_is_tied(capsys):
    half = rows(succeeds(capsys, "plan", "random:Qwen3-0.6B"))
    full = rows(succeeds(capsys, "plan", "random:Qwen3-0.6B", "--dtype", "float32"))
    assert half["head"].startswith("tied")
    assert (half["one layer"].split()[0], full["one layer"].split()[0]) == ("30.0", "60.0")


def test_plan_of_a_mixture_of_experts(capsys):
    plan = rows(succeeds(capsys, "plan", "random:Qwen3-30B-A3B"))
    assert plan["experts"] == "128 of 768, 8 a token, in 48 layers"
    assert "MLP" not in plan
    assert plan["parameters"] == "30,532,122,624"


def test_plan_of_a_folder_reads_only_its_configuration(tmp_path, capsys):
    folder = good_model(tmp_path / "m")
    (folder / "model.safetensors").unlink()
    assert rows(succeeds(capsys, "plan", folder))["layers"] == "3 of width 48"


@pytest.mark.parametrize("tokens", ["0", "-3", str(CONTEXT + 1)])
def test_plan_beyond_the_context(tmp_path, capsys, tokens):
    folder = good_model(tmp_path / "m")
    succeeds(capsys, "plan", folder, "--max-model-len", CONTEXT)
    fails(capsys, 2, "plan", folder, "--max-model-len", tokens, says=(tokens, str(CONTEXT)))


def test_plan_says_what_is_free(capsys, monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: 3 * 2**30)
    assert rows(succeeds(capsys, "plan", "random:Qwen3-8B"))["free here"] == "3.00 GiB of main memory"


# ---- on a machine that is not here ----


def test_plan_for_a_card_that_is_too_small(capsys):
    plan = rows(
        succeeds(capsys, "plan", "random:Qwen3-8B", "--hardware", "rtx3070", "--max-model-len", "1024")
    )
    resident = int(plan["placement"].split()[0])
    assert (
        plan["placement"]
        == f"{resident} of 36 layers resident, {36 - resident} streamed through 1 slot (prefetch)"
    )
    assert plan["copied a token"] == gib((36 - resident) * 192_946_432 * 2)
    assert plan["speed"] == f"{31.5e9 / ((36 - resident) * 192_946_432 * 2):.1f} tokens a second at most"
    assert float(plan["GPU memory"].split()[0]) <= 7.2 < float(plan["GPU memory"].split()[0]) + 0.36


def test_plan_for_a_given_budget_and_for_a_card_that_is_large_enough(capsys):
    ask = ("plan", "random:Qwen3-8B", "--hardware")
    small = rows(succeeds(capsys, *ask, "rtx4090", "--gpu-layer-budget", "13", "--slots", "2"))
    assert small["placement"] == "11 of 36 layers resident, 25 streamed through 2 slots (prefetch)"
    large = rows(succeeds(capsys, *ask, "h200"))
    assert large["placement"] == "all 36 layers resident"
    assert float(large["speed"].split()[0]) == pytest.approx(4800 / 15.1, rel=0.02)


def test_plan_for_a_machine_without_gpu(capsys):
    plan = rows(succeeds(capsys, "plan", "random:Qwen3-8B", "--hardware", "laptop"))
    assert plan["speed"] == "3.4 tokens a second at most"
    says = ("laptop", "gpu_layer_budget")
    fails(capsys, 2, "plan", "random:Qwen3-8B", "--hardware", "laptop", "--gpu-layer-budget", "3", says=says)


def test_plan_for_a_cpu_says_which_formats_do_not_reach_the_bound(capsys):
    """In this engine int8 alone has a product of its own there."""
    ask = ("plan", "random:Qwen3-8B", "--hardware", "laptop", "--quantize")
    assert "not reached" not in rows(succeeds(capsys, *ask, "int8"))
    for mix in ("int4", "fp8", "attn=int8,mlp=int4"):
        assert "slower than 16 bits" in rows(succeeds(capsys, *ask, mix))["not reached"]


def test_a_placement_without_a_machine_and_an_unknown_machine(capsys):
    fails(capsys, 2, "plan", "random:Qwen3-8B", "--gpu-layer-budget", "3", says=("--hardware", "rtx3070"))
    fails(capsys, 2, "plan", "random:Qwen3-8B", "--hardware", "abacus", says=("abacus", "rtx3070"))


# ---- from a hub ----


@pytest.fixture
def served(tmp_path, monkeypatch):
    from huggingface_hub import constants

    files = {path.name: path.read_bytes() for path in good_model(tmp_path / "origin").iterdir()}
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    with StandInHub(MODEL, files) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        yield hub


def test_download_prints_a_folder_that_answers_like_the_origin(served, tmp_path, capsys):
    folder = Path(succeeds(capsys, "download", MODEL).strip())
    question = ("--prompt", "Hi", "--max-new-tokens", "8")
    expected = succeeds(capsys, "generate", tmp_path / "origin", *question)
    assert succeeds(capsys, "generate", folder, *question) == expected
    served.log.clear()
    assert succeeds(capsys, "generate", MODEL, *question) == expected
    assert served.log == []


def test_generate_and_plan_download_what_they_need(served, capsys):
    assert rows(succeeds(capsys, "plan", MODEL))["layers"] == "3 of width 48"
    assert served.requests("model.safetensors") == []
    succeeds(capsys, "generate", MODEL, "--prompt", "Hi", "--max-new-tokens", "2")
    assert len(served.requests("model.safetensors")) == 1


def test_a_corrupt_download_is_one_line_and_leaves_no_model(served, capsys):
    served.faults.corrupt = "model.safetensors"
    fails(capsys, 1, "download", MODEL, says=("model.safetensors is corrupt", "removed"))
    served.faults.corrupt = None
    succeeds(capsys, "download", MODEL)


def test_ctrl_c_keeps_what_came(served, capsys, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(transfer, "_answer", interrupted)
        assert main(["download", MODEL]) == 130
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "minillm: interrupted: what came is kept, run the same again to go on from there\n"
    succeeds(capsys, "download", MODEL)


def test_download_wants_a_hub_id(capsys):
    fails(capsys, 2, "download", "Qwen3-8B", says=("'Qwen3-8B'", "owner/name"))
