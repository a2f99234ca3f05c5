"""The baseline: what each part measures with and without a GPU, vLLM's rows from another result."""

import json
import sys
from types import SimpleNamespace

import pytest
import stand_in_peer
from test_offloaded import SHAPE

from experiments import baseline, machine, peers, side_by_side, vllm_compare
from minillm import LLM, ModelConfig, presets

COMMAND = ["--device", "cpu", "--model", "random:Small", "--machine", "box", "--new-tokens", "4"]
COMMAND += ["--lengths", "8", "40"]
ABOUT = {"date": "now", "commit": "abc", "command": "x"}


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setitem(presets.PRESETS, "Small", ModelConfig(**SHAPE))
    monkeypatch.setattr(machine, "describe", lambda: ABOUT)
    for name in peers.WORDS:
        monkeypatch.setitem(peers.WORDS, name, [sys.executable, stand_in_peer.__file__, "whole"])


def stored(folder):
    return json.loads((folder / "baseline__box.json").read_text())


def keys(folder):
    return [row["key"].removeprefix("Small/") for row in stored(folder)["rows"]]


def run(folder, *parts, more=()):
    command = [*COMMAND, "--prompts", "2", "--out", str(folder), "--resume", str(folder)]
    return baseline.main([*command, "--parts", *parts, *more])


def test_without_a_gpu_there_is_one_path(tmp_path):
    assert run(tmp_path, "fast", "eager") == 0
    rows = stored(tmp_path)["rows"]
    assert {row["path"] for row in rows} == {"eager"}
    assert keys(tmp_path)[1:] == [
        *("minillm/resident/0", "minillm/resident/19"),
        *("minillm/prefill/8", "minillm/prefill/40", "minillm/resident/peak"),
    ]


def test_peers_join_and_are_asked_for_fewer_prompts(tmp_path):
    run(tmp_path, "eager", "transformers", "vllm", more=["--few", "1"])
    found = keys(tmp_path)
    assert [key for key in found if key.startswith("transformers/resident/1")] == ["transformers/resident/10"]
    assert {"vllm/resident/0", "vllm/resident/19", "transformers/prefill/40"} < set(found)
    names = {c["name"]: c for c in stored(tmp_path)["checks"]}
    assert names["Small resident: decode tok/s, ours over vllm"]["value"] > 0
    assert names["Small resident: decode tok/s, ours over vllm"]["goal"] is None  # no GPU


def test_on_a_gpu_the_fast_path_answers_all_and_the_eager_one_few(monkeypatch):
    asked = []
    monkeypatch.setattr(
        side_by_side,
        "measure_resident",
        lambda _, __, ___, requests, eager=False: asked.append((requests, eager)),
    )
    options = baseline.read_options([*COMMAND, "--prompts", "3", "--few", "2"])
    options.device = "cuda"
    for part in ("fast", "eager"):
        baseline.measure(None, options, part)
    (fast, plain), (few, eager) = asked
    ends = ["minillm/resident/0", "minillm/resident/10", "minillm/resident/19", "minillm/prefill/8"]
    assert [request.key.removeprefix("Small/") for request in fast[:4]] == ends
    ends = ["minillm/resident-eager/0", "minillm/resident-eager/19", "minillm/resident-eager/peak"]
    assert [request.key.removeprefix("Small/") for request in few] == ends
    assert (plain, eager) == (False, True)


def test_eager_is_asked_of_the_engine_only_where_it_is_wanted(tmp_path, monkeypatch):
    made = []

    def engine(model, **options):
        made.append(options)
        return LLM(model, **{name: value for name, value in options.items() if name != "enforce_eager"})

    monkeypatch.setattr(side_by_side, "LLM", engine)
    options = baseline.read_options(COMMAND)
    results = baseline.Results("x", "box", tmp_path, about=ABOUT)
    for eager in (False, True):
        start = "-eager" if eager else ""
        requests = side_by_side.resident_requests(options, options.model, "minillm", [0], 3, start)
        side_by_side.measure_resident(results, options, options.model, requests, eager)
    assert ["enforce_eager" in each for each in made] == [False, True]
    assert len(results.rows("Small/minillm/resident-eager/")) == 3


@pytest.mark.parametrize(
    ("device", "replays", "path"), [("cuda", 9, "fast"), ("cuda", 0, "eager"), ("cpu", 9, "eager")]
)
def test_the_path_is_what_the_engine_did(device, replays, path):
    llm = SimpleNamespace(device=SimpleNamespace(type=device), graph_replays=replays)
    assert side_by_side.path_of(llm) == path


# ---- vLLM's rows of the other experiment ----


@pytest.fixture
def compared(tmp_path):
    """A folder with vLLM's rows of the same model and of another one."""
    folder = tmp_path / "compared"
    command = [
        "--models",
        "random:Small",
        "tiny",
        "--parts",
        "vllm",
        "vllm-process",
        "--prompts",
        "2",
        "--kv-tokens",
        "2048",
    ]
    vllm_compare.main([*COMMAND, *command, "--out", str(folder)])
    return folder


def test_rows_of_the_comparison_are_taken_over(tmp_path, compared, monkeypatch):
    monkeypatch.setattr(peers, "rows", lambda *_: pytest.fail("they are there"))
    run(tmp_path, "vllm", more=["--vllm-from", str(compared)])
    assert keys(tmp_path) == [
        *("vllm/resident/loaded", "vllm/resident/0", "vllm/resident/19"),
        *("vllm/prefill/8", "vllm/prefill/40", "vllm/resident/peak"),
        *(f"vllm/resident-process/{end}" for end in ("loaded", "0", "19", "prefill/8", "prefill/40")),
    ]
    assert {row["from"] for row in stored(tmp_path)["rows"]} == {"vllm__box.json"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"commit": "other"}, "another commit"),
        ({"settings": None}, "another new_tokens"),
        (None, "is not there"),
    ],
)
def test_rows_of_another_run_are_refused(tmp_path, compared, change, message, monkeypatch):
    path = compared / "vllm__box.json"
    found = json.loads(path.read_text())
    if change is None:
        path.unlink()
    else:
        changed = {"settings": {**found["settings"], "new_tokens": 5}} if "settings" in change else change
        path.write_text(json.dumps(found | changed))
    with pytest.raises(baseline.InputError, match=message):
        run(tmp_path, "vllm", more=["--vllm-from", str(compared)])


# ---- judging ----


def row(engine, path, speed, index=0):
    made = {"key": f"Small/{engine}/resident/{index}", "model": "Small", "engine": engine, "mode": "resident"}
    made |= {"path": path, "question_id": index, "tokens_per_s": speed, "ttft_s": 0.1, "prompt_tokens": 3}
    return made | {"new_tokens": 4, "device_gb_s": 1.0, "peak_bytes": 5}


def test_the_fast_path_is_what_peers_are_compared_with():
    rows = [row("minillm", "fast", 40.0), row("minillm", "fast", 60.0, 1), row("minillm", "eager", 10.0)]
    rows += [row("vllm", None, 50.0), row("vllm", None, 50.0, 1), row("transformers", None, 8.0)]
    found = {c["name"]: (c["value"], c["met"]) for c in baseline.timed_checks(rows, "Small")}
    assert found["Small resident: decode tok/s, fast over eager"] == (4.0, None)
    assert found["Small resident: decode tok/s, ours over vllm"] == (1.0, True)
    assert found["Small resident: decode tok/s, ours over transformers"] == (5.0, None)
    assert found["Small resident, ours: tok/s, median of 2 prompts"][0] == 50.0
