"""The report's tables and figures from small results made by hand; what is missing is said."""

from math import sqrt

import pytest
from matplotlib import pyplot as plt
from small_results import cells, store

from experiments import (
    report_figures,
    report_fits,
    report_losses,
    report_quant,
    report_streams,
    report_tables,
)
from experiments import report_timelines as timelines
from experiments.report_results import NOT_YET, Archive, caption, middle, milliseconds, number, over
from experiments.report_table import ABSENT, Table, show

MODEL = "Qwen3-8B"
TABLES = [
    *(report_tables.machines, report_tables.files, report_tables.float32, report_tables.skills),
    *(report_tables.bf16, report_tables.own_modes, report_fits.starts, report_fits.on_the_cpu),
    *(report_fits.fast_path, report_streams.offloaded, report_streams.beside_vllm),
    *(report_streams.long_prompts, report_streams.sweep, report_streams.simulator, report_streams.loading),
    *(report_streams.load_steps, report_streams.bigger, report_quant.streamed, report_quant.resident),
]
FIGURES = [
    *(report_figures.errors, report_figures.rounding, report_figures.steps, report_figures.compared),
    *(report_figures.beside_vllm, report_figures.loading, timelines.sweep, timelines.modes),
    *(timelines.around_knee, timelines.first_tokens, timelines.one_line, timelines.forecast),
]


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


@pytest.fixture
def archive(tmp_path):
    return Archive(tmp_path)


# ---- what is missing ----


@pytest.mark.parametrize("make", TABLES, ids=lambda make: make.__name__)
def test_a_missing_result_is_not_measured_yet(make, archive):
    table = make(archive)
    if make is not report_tables.machines:  # the course's card is there without a measurement
        assert NOT_YET in repr(table)
        assert NOT_YET in table._repr_html_()


@pytest.mark.parametrize("make", FIGURES, ids=lambda make: make.__name__)
def test_a_missing_result_is_no_figure(make, archive):
    assert make(archive) is None


def test_experiments_by_model_are_not_measured_yet(archive):
    for make in (report_fits.resident, report_fits.prefills):
        assert make(archive, "vllm", MODEL).rows == ABSENT
    assert report_figures.resident(archive, "vllm") is None


@pytest.mark.parametrize("make", TABLES, ids=lambda make: make.__name__)
def test_stored_results_make_tables(make):
    made = make(Archive())
    assert made if isinstance(made, str) else made.rows


@pytest.mark.parametrize("make", FIGURES, ids=lambda make: make.__name__)
def test_stored_results_make_figures(make):
    made = make(Archive())
    assert made is None or made.axes


# ---- values ----


def test_values_as_text():
    assert (number(None), number(1.005, ".1f"), number(2.0, ".0f", "GB/s")) == (NOT_YET, "1.0", "2 GB/s")
    assert (milliseconds(0.0214), milliseconds(1.6227), milliseconds(None)) == (
        "21.4 ms",
        "1,623 ms",
        NOT_YET,
    )
    assert (over(3, 2), over(None, 2), over(3, None), over(3, 0)) == (1.5, None, None, None)
    assert middle([{"x": 1}, {"x": 5}, {"x": None}, {}, {"x": 3}], "x") == 3
    assert middle([], "x") is None


def test_a_file_knows_its_machine_and_day(archive):
    store(archive, "loading", machine="cpu2")
    stored = archive.get("loading", "cpu2")
    assert caption("Loading", stored) == "Loading (loading, two cores, 2026-01-02)"
    assert stored.commit == "abcdef0"
    assert caption("Loading", archive.get("loading")) == f"Loading: {NOT_YET} (loading__h200.json)"


def test_a_run_that_was_cut_short_is_no_result(archive):
    store(archive, "parity")
    (archive.folder / "vllm__h200.partial.json").write_text("{}")
    assert [stored.experiment for stored in archive.all()] == ["parity"]


# ---- the table ----


def test_a_table_escapes_marks_and_spans():
    table = Table("a < b", ("x", "RTX 3070, predicted"), (("1.5 GB/s", "2"), ("<b>",)), ("n & m",))
    made = table._repr_html_()
    assert "<caption>a &lt; b</caption>" in made
    assert '<th class="predicted">RTX 3070, predicted</th>' in made
    assert '<td class="figure">1.5 GB/s</td><td class="predicted figure">2</td>' in made
    assert '<td colspan="2">&lt;b&gt;</td>' in made
    assert '<p class="note">n &amp; m</p>' in made
    assert repr(table).splitlines() == [
        "a < b",
        "x         RTX 3070, predicted",
        "1.5 GB/s  2",
        "<b>",
        "n & m",
    ]


def test_a_long_row_is_an_error():
    with pytest.raises(ValueError, match="3 cells"):
        Table("t", ("a", "b"), (("1", "2", "3"),))


def test_text_is_markdown(capsys):
    show("**a**")
    assert "**a**" in capsys.readouterr().out


# ---- correctness and goals ----


def test_float32_counts_answers_and_names_the_worst_error(archive):
    row = {"answers": 5, "equal": 4, "ties": ["x"], "max_logit_error": 2e-5}
    better = {"answers": 1, "equal": 1, "ties": [], "max_logit_error": 1e-6}
    store(archive, "parity", [{"key": "grid/0", **row}, {"key": "grid/1", **better}], machine="cpu2")
    assert cells(report_tables.float32(archive), "grid")[2:] == ("6", "5", "1", "2.0e-05", "1e-04")
    assert cells(report_tables.float32(archive), "tiny")[2:] == (NOT_YET,)


def test_rms_errors_are_taken_over_all_rows():
    rows = [
        {"squared_error": 9.0, "squared_error_reference": 1.0},
        {"squared_error": 1.0, "squared_error_reference": 39.0},
    ]
    assert report_tables.rms_ratio(rows) == pytest.approx(sqrt(10 / 40))


def test_missed_goals_are_listed_with_what_is_known(archive):
    met = {"name": "fast", "value": 2.0, "goal": 1.0, "better": "higher", "met": True}
    reported = {"name": "seen", "value": 2.0, "goal": None, "better": "higher", "met": None}
    slow = {"name": "naive/3: speed", "value": 0.5, "goal": 1.0, "better": "higher", "met": False}
    large = {"name": "memory", "value": None, "goal": 1.0, "better": "lower", "met": False}
    store(archive, "vllm", checks=[met, slow, reported, large])
    table = report_losses.missed(archive, (("naive/.*speed", "the host"),))
    assert table.rows == (
        ("vllm, H200", "naive/3: speed", "0.5", "≥ 1", "the host"),
        ("vllm, H200", "memory", NOT_YET, "≤ 1", "not found yet"),
    )
    assert cells(report_tables.files(archive), "vllm")[-1] == "1 of 3"
    store(archive, "vllm", checks=[met])
    assert "none of the 1 " in report_losses.missed(archive)


def test_where_another_program_is_ahead(archive):
    def compared(name, value, better, met=None):
        return {"name": name, "value": value, "goal": 1.1, "better": better, "met": met}

    checks = [
        compared("8B: prefill, ours over vllm", 1.05, "lower", True),
        compared("8B: memory, ours over vllm", 0.95, "lower", True),
        compared("8B: tok/s, ours over vllm", 0.5, "higher"),
        compared("8B: tok/s, ours over transformers", 20.0, "higher"),
        compared("14B: prefill, ours over vllm", 1.5, "lower", False),  # a missed goal: in the other table
        compared("8B: peak, ours over vllm", None, "lower"),
        compared("predicted over measured", 1.01, "lower"),
    ]
    store(archive, "vllm", checks=checks)
    assert report_losses.behind(archive, (("prefill", "attention"),)).rows == (
        ("vllm, H200", "8B", "prefill", "vLLM", "1.050", "attention"),
        ("vllm, H200", "8B", "tok/s", "vLLM", "0.500", "not found yet"),
    )
    store(archive, "vllm", checks=checks[1:2])
    assert report_losses.behind(archive).rows == (("nowhere",),)


def test_what_is_behind_in_the_same_way_is_one_row(archive):
    def compared(name, value):
        return {"name": f"8B{name}", "value": value, "goal": None, "better": "lower", "met": None}

    locked = "%s: locked, ours over vLLM's %s offloader"
    settings = [(layers, mode) for layers in (", 13 layers", ", 14 layers") for mode in ("prefetch", "uva")]
    checks = [compared(locked % each, 1.2) for each in settings]
    store(archive, "vllm", checks=[*checks, compared(" resident: prefill, ours over vllm", 1.02)])
    store(archive, "baseline", checks=[compared(" resident: prefill, ours over vllm", 1.03)])
    rivals = "vLLM's prefetch offloader and vLLM's uva offloader"
    assert [row[:5] for row in report_losses.behind(archive).rows] == [
        ("baseline, H200 and vllm, H200", "8B", "prefill", "vLLM", "1.020 to 1.030"),
        ("vllm, H200", "8B, 13 layers and 14 layers", "locked", rivals, "1.200"),
    ]


def test_what_no_check_tells_is_compared_too(archive):
    def row(engine, end, **more):
        made = {"key": f"{MODEL}/{engine}/resident/{end}", "model": MODEL, "engine": engine}
        return made | {"mode": "resident", "path": "fast" if engine == "minillm" else None} | more

    answered = {"question_id": 1, "prompt_tokens": 8, "new_tokens": 4, "tokens_per_s": 5.0}
    rows = [row("minillm", "loaded", load_s=0.5, warm_s=0.5), row("transformers", "loaded", load_s=0.4)]
    rows += [row("minillm", 0, **answered, ttft_s=0.2, peak_bytes=120)]
    rows += [row("transformers", 0, **answered, ttft_s=0.1, peak_bytes=100)]
    store(archive, "baseline", rows)
    modes = {"prefetch": (1.0, 9.0, 30), "accelerate": (2.0, 10.0, 40)}
    fields = ("ttft_s", "tokens_per_s", "peak_bytes")
    rows = [
        {"key": f"{mode}/0", "question_id": 1} | dict(zip(fields, values, strict=True))
        for mode, values in modes.items()
    ]
    store(archive, "offload_compare", rows)
    ways = {"minillm": (0.4, 100), "transformers": (0.1, 1)}
    rows = [
        {"key": f"0.6B/{way}/0", "seconds": seconds, "peak_bytes": peak}
        for way, (seconds, peak) in ways.items()
    ]
    store(archive, "loading", rows, machine="cpu2")
    assert [(*row[1:5],) for row in report_losses.behind(archive).rows] == [
        (MODEL, "TTFT", "transformers", "2.000"),
        (MODEL, "peak GPU memory", "transformers", "1.200"),
        (MODEL, "seconds until ready", "transformers", "2.500"),
        ("Qwen3-8B, offloaded", "decode tok/s", "accelerate", "0.900"),
        ("0.6B", "loading: seconds", "transformers", "4.000"),
        ("0.6B", "loading: peak memory", "transformers", "100"),
    ]


def skill(right):
    counts = {"prompts": 4, "right": right, "right_reference": 4, "same": right}
    return {"key": "skills/json/0", **counts}


def test_skills_are_a_sentence_unless_something_is_wrong(archive):
    store(archive, "parity", [skill(4)], machine="cpu2")
    assert "here were answered right in float32, 4 by `tiny`;" in report_tables.skills(archive)
    store(archive, "parity", [skill(3)], machine="cpu2")
    assert report_tables.skills(archive).rows == (("tiny", "json", "4", "75.0%", "100.0%", "75.0%"),)


def test_notebooks_that_ran_are_told_of_all(archive):
    every = len(list(report_tables.NOTEBOOKS.glob("*.ipynb")))
    check = {"name": "ran", "value": 1, "goal": 2, "better": "higher", "met": False}
    store(
        archive, "cells", [{"key": "notebooks/07_speed.ipynb"}, {"key": "notebooks/08_naive.ipynb"}], [check]
    )
    assert cells(report_tables.own_modes(archive), "notebooks")[-1] == f"2 of {every} (07 to 08), 1 passed"
    store(archive, "cells", [{"key": "07_speed"}, {"key": "09_x"}], [check | {"value": 2}])
    assert cells(report_tables.own_modes(archive), "notebooks")[-1] == f"2 of {every} (07, 09), all passed"


def test_rounding_up_to_powers_of_two():
    exact, rounded = report_tables.pinned_bytes("Qwen3-1.7B")
    q, kv, mlp = 2048 * 2048, 1024 * 2048, 6144 * 2048
    assert exact == 28 * 2 * (2 * q + 2 * kv + 3 * mlp + 2 * 2048 + 2 * 128)
    assert rounded == 28 * 2 * (2 * q + 2 * kv + 3 * 2**24 + 2 * 2048 + 2 * 128)  # 6144 · 2048 is none


def test_fewer_bits_are_told_beside_sixteen(archive):
    common = {
        "model": "8B",
        "budget": 2,
        "resident": 1,
        "streamed": 3,
        "streamed_bytes": 2e9,
        "peak_bytes": 2**30,
    }
    common |= {"limit_tokens_per_s": 10.0, "dense_limit_tokens_per_s": 5.0, "rtx3070_tokens_per_s": None}
    rows = [
        common | {"key": "8B/int8/2", "mode": "prefetch", "quantize": "int8", "tokens_per_s": 9.0},
        *(
            common
            | {"key": f"8B/{name}/resident{end}", "mode": "resident", "quantize": name, "tokens_per_s": speed}
            for name, end, speed in ((None, "", 100.0), ("int4", "", 150.0), ("int4", "-eager", 5.0))
        ),
    ]
    store(archive, "quant", rows)
    assert cells(report_quant.streamed(archive), "8B") == (
        *("8B", "int8", "2 of 4", "2.0 GB", "9.00", "90.0%", "1.80", "1.00 GiB", NOT_YET),
    )
    assert cells(report_quant.resident(archive), "int4") == ("int4", "150.0", "1.50", "1.00 GiB", "5.0")
    assert cells(report_quant.resident(archive), "16 bits")[-1] == "–"
