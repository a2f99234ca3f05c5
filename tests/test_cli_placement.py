"""`plan`, `ceilings`, `sweep` and `bench`: bad options are one line, before anything is measured."""

import json

import pytest
from command_line import CONTEXT, fails, good_model, succeeds

from minillm import LLM, ceilings
from minillm.__main__ import main
from minillm.bench import MOST_REQUESTS, bench
from minillm.errors import InputError

QUICK = ("--prompt-tokens", "4", "--max-new-tokens", "2")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return good_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def llm(model):
    with LLM(model, device="cpu") as made:
        yield made


# option, bad values, what the line must name; of the options that say where layers lie
PLACEMENT = [
    ("--gpu-layer-budget", ["0", "-1"], "gpu_layer_budget"),
    ("--slots", ["-1", "0", "5"], "slots"),
    ("--gpu-memory-gib", ["nan", "inf", "-1", "0", "1e300"], "gpu_memory_gib"),
]
BAD = [(option, value, name) for option, values, name in PLACEMENT for value in values]


@pytest.mark.parametrize(("option", "bad", "named"), BAD)
def test_plan_gives_the_lines_of_an_llm(model, capsys, option, bad, named):
    ask = ("plan", model, "--hardware", "rtx3070")
    succeeds(capsys, *ask, "--gpu-layer-budget", "2", "--slots", "1")
    line = fails(capsys, 2, *ask, f"{option}={bad}", says=(named,))
    generate = ("generate", model, "--prompt", "Hi", "--device", "cpu")
    assert fails(capsys, 2, *generate, f"{option}={bad}") == line


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--offload", "none", "--gpu-memory-gib", "2"), "offload is none"),
        (("--offload", "none", "--gpu-layer-budget", "2"), "offload is none"),
        (("--offload", "naive", "--slots", "1"), "offload naive has no slots"),
        (("--gpu-memory-gib", "100"), "but the device has 8.00 GiB"),
    ],
)
def test_plan_refuses_what_contradicts(model, capsys, options, says):
    fails(capsys, 2, "plan", model, "--hardware", "rtx3070", *options, says=(says,))


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "1e-300"])
def test_ceilings_checks_the_link_before_it_measures(model, capsys, monkeypatch, value):
    monkeypatch.setattr(ceilings, "measure", lambda: pytest.fail("it was measured"))
    fails(capsys, 2, "ceilings", model, "--device", "cpu", f"--link-gb-s={value}", says=("link_gb_s",))


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("--device", "bogus"), "device"),
        (("--device", "cpu"), "device without a model"),
        (("--link-gb-s", "5", "--dtype", "float32"), "dtype, link_gb_s without a model"),
        (("random:none-such",), "none-such"),
        (("tiny", "--device", "bogus"), "'bogus'"),
    ],
)
def test_ceilings_ignores_no_option(capsys, monkeypatch, argv, says):
    monkeypatch.setattr(ceilings, "measure", lambda: pytest.fail("it was measured"))
    fails(capsys, 2, "ceilings", *argv, says=(says,))


def test_sweep_with_two_slots_begins_with_a_budget_of_two(capsys):
    assert main(["sweep", "tiny", "--device", "cpu", "--slots", "2", "--json", *QUICK]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert sorted({row["budget"] for row in rows}) == list(range(2, 9))
    assert {row["slots"] for row in rows if row["mode"] == "prefetch" and row["budget"] < 5} == {2}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--modes", "naive", "--slots", "2"), "slots is 2, but offload naive has no slots"),
        (("--slots", "2", "--budgets", "3,1"), "slots is 2 in a gpu_layer_budget of 1"),
        (("--slots", "5"), "slots is 5"),
        (("--slots", "0"), "slots is 0"),
        (("--prompt-tokens", str(CONTEXT + 1)), f"the context of {CONTEXT}"),
        (("--max-new-tokens", str(CONTEXT + 1)), f"the context of {CONTEXT}"),
    ],
)
def test_sweep_checks_before_its_header(model, capsys, options, says):
    fails(capsys, 2, "sweep", model, "--device", "cpu", *QUICK, *options, says=(says,))


@pytest.mark.parametrize("batch", [MOST_REQUESTS + 1, 10**9])
def test_a_batch_beyond_reason_is_told_at_once(model, capsys, batch):
    line = fails(capsys, 2, "bench", model, "--device", "cpu", *QUICK, "--batch", batch, says=("batch",))
    assert str(MOST_REQUESTS) in line


@pytest.mark.parametrize(
    ("keywords", "says"),
    [
        ({"batch": 0}, "batch is 0"),
        ({"batch": -1}, "batch is -1"),
        ({"batch": 1.5}, "batch is 1.5"),
        ({"batch": 10**9}, f"at most {MOST_REQUESTS}"),
        ({"prompt_tokens": 0}, "prompt_tokens is 0"),
        ({"new_tokens": 0}, "new_tokens is 0"),
        ({"new_tokens": 10**5000}, "more than the context"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else value,
)
def test_bench_through_the_api(llm, keywords, says):
    quick = {"prompt_tokens": 4, "new_tokens": 2, "batch": 2}
    assert bench(llm, **quick).batch == 2
    with pytest.raises(InputError, match=says) as caught:
        bench(llm, **quick | keywords)
    assert "\n" not in str(caught.value)
