"""What the report says of programs side by side, from small results made by hand."""

import pytest
from matplotlib import pyplot as plt
from small_results import MODEL, answer, cells, store

from experiments import (
    report_figures,
    report_fits,
    report_rows,
    report_streams,
    vllm_checks,
)
from experiments.report_results import NOT_YET, Archive
from minillm import plot


@pytest.fixture
def archive(tmp_path):
    yield Archive(tmp_path)
    plt.close("all")


# ---- programs side by side ----


OURS = [
    answer("minillm", "resident", q, s, path="fast", device_gb_s=3800.0) for q, s in ((1, 10.0), (2, 30.0))
]
THEIRS = [answer("vllm", "resident", q, s, device_gb_s=3800.0) for q, s in ((2, 10.0), (1, 5.0), (3, 99.0))]
PEAK = {**answer("minillm", "resident", None, 9.0, path="fast"), "key": f"{MODEL}/minillm/resident/peak"}
PEAK |= {"peak_bytes": 2**34, "new_tokens": 2}
FAILED = {
    "key": f"{MODEL}/transformers/resident",
    "model": MODEL,
    "engine": "transformers",
    "mode": "resident",
}
FAILED |= {"failed": "ended with status 1"}


TOKENS = {"prompt_tokens": 128, "new_tokens": 128}


@pytest.fixture
def side_by_side(archive):
    store(archive, "vllm", [*OURS, PEAK, *THEIRS, FAILED])
    return archive


def test_settings_are_told_apart():
    streamed = {"path": "fast", "budget": 14, "slots": 1}
    rows = {
        "minillm, fast": OURS[0],
        "minillm prefetch, N = 14, fast": answer("minillm", "prefetch", 1, 6.0, **streamed),
        "vLLM prefetch, 2 slots": answer("vllm", "prefetch", 1, 6.0, slots=2),
        "vLLM UVA": answer("vllm", "uva", 1, 6.0),
        "vLLM, own process": answer("vllm", "resident-process", 1, 6.0),
    }
    assert [report_rows.setting(row) for row in rows.values()] == list(rows)
    assert [report_rows.is_resident(row) for row in rows.values()] == [True, False, False, False, True]


def test_ratios_are_of_the_same_prompts(side_by_side):
    stored = side_by_side.get("vllm")
    assert report_rows.ratio(stored, MODEL, "minillm", "vLLM") == pytest.approx(2.5)  # 10 / 5 and 30 / 10
    assert report_rows.ratio(stored, MODEL, "minillm", "vLLM prefetch") is None


def test_of_two_settings_of_a_program_the_faster_counts(archive):
    slow, fast = (answer("vllm", mode, 1, s) for mode, s in (("resident", 4.0), ("resident-process", 8.0)))
    store(archive, "vllm", [answer("minillm", "resident", 1, 6.0), slow, fast])
    assert report_rows.ratio(archive.get("vllm"), MODEL, "minillm", "vLLM") == pytest.approx(0.75)


def test_resident_programs(side_by_side):
    table = report_fits.resident(side_by_side, "vllm", MODEL)
    ours = cells(table, "minillm, fast")
    assert ours[1:6] == ("2 × 256", "20.0 ms", "20.0", "10.0–30.0", "2.50")
    assert ours[7:] == ("16.00 GiB", "does not fit")  # of the request about memory
    assert cells(table, "vLLM")[1] == "3 × 256"
    assert cells(table, "transformers") == ("transformers", "not measured: ended with status 1")
    assert report_figures.resident(side_by_side, "vllm") is not None


def test_memory_of_another_process_cannot_be_seen_and_is_not_missing(archive):
    store(archive, "vllm", [answer("vllm", "resident-process", 1, 6.0)])
    assert cells(report_fits.resident(archive, "vllm", MODEL), "vLLM, own process")[7] == "–"


def test_share_of_the_bandwidth_counts_weights_and_cache():
    hidden, width, kv = 4096, 12288, 1024
    layer = 2 * hidden * hidden + 2 * hidden * kv + 3 * hidden * width + 2 * hidden + 2 * 128
    read = 2 * (36 * layer + 151936 * hidden) + (100 + 128) * 36 * 2 * kv * 2
    share = vllm_checks.bandwidth_share(MODEL, OURS[0], 3800.0)
    assert share == pytest.approx(10.0 * read / 3800e9, rel=1e-3)  # the last norm is not counted here


def test_table_and_figure_share_one_rate_the_median_of_a_files_commands(archive):
    rates = {"minillm": 3700.0, "vllm": 3800.0, "transformers": 4200.0}
    rows = [answer(name, "resident", 1, 100.0, device_gb_s=rate) for name, rate in rates.items()]
    store(archive, "vllm", [*rows, rows[-1] | {"key": f"{MODEL}/transformers/resident/2"}])
    stored = archive.get("vllm")
    assert report_rows.copy_gb_s(stored) == 3800.0
    limit = report_rows.bandwidth_limit(stored, MODEL, rows)
    share = report_rows.bandwidth_share(stored, MODEL, rows)
    assert share == pytest.approx(100.0 / limit)
    assert cells(report_fits.resident(archive, "vllm", MODEL), "minillm")[6] == f"{share:.0%}"
    (axes,) = report_figures.resident(archive, "vllm").axes
    assert limit in [line.get_xdata()[0] for line in axes.lines]
    store(archive, "fast_path", [], ceilings={"device_copy_gb_s": 3900.0})
    assert report_rows.copy_gb_s(archive.get("fast_path")) == 3900.0


def test_a_number_before_a_limit_stands_behind_its_line():
    axes = plt.subplots()[1]
    values = [95.0, 50.0, 101.0]
    plot.bars(axes, ["a", "b", "c"], values, ["compute"] * 3, ["95", "50", "101"])
    axes.set_xlim(0, 130)
    report_figures.beyond(axes, values, 100.0)
    assert [label.xy[0] for label in axes.texts] == [100.0, 50.0, 101.0]


def test_only_our_fastest_row_has_a_prediction_and_a_program_can_be_left_out(archive):
    slow = [answer("minillm", "resident-eager", 1, 5.0, path="eager") | {"mode": "resident"}]
    store(archive, "vllm", [OURS[0], *slow, *THEIRS])
    table = report_fits.resident(archive, "vllm", MODEL, without="vLLM")
    assert [(row[0], row[-1]) for row in table.rows] == [
        ("minillm, fast", "does not fit"),
        ("minillm, eager", "–"),
    ]
    assert cells(table, "minillm, fast")[5] == "2.00"  # over vLLM, whose rows are not shown


def test_memory_without_vllms_counters_is_a_note(archive):
    name = f"{MODEL} resident: peak GPU memory less its counts for many sequences, ours over vllm"
    check = {"name": name, "value": 0.97, "goal": None, "better": "lower", "met": None}
    store(archive, "vllm", [*OURS, *THEIRS], [check])
    assert report_fits.resident(archive, "vllm", MODEL).notes[-1].endswith("ours over vLLM’s is 0.97.")
    assert "counters" not in repr(report_fits.resident(archive, "vllm", MODEL, without="vLLM"))


def test_a_start_is_told_once_for_each_program_and_model(archive):
    def start(mode, seconds, end="", **more):
        key = f"{MODEL}/vllm/{mode}/loaded{end}"
        return {"key": key, "model": MODEL, "mode": mode, "engine": "vllm", "load_s": seconds} | more

    store(archive, "vllm", [start("prefetch", 50.0), start("prefetch", 33.0, "/1"), start("resident", 80.0)])
    store(archive, "baseline", [start("resident", 80.0) | {"from": "vllm__h200.json"}])
    store(archive, "fast_path", [{"key": "starts", "model": MODEL, "cold_s": 6.84, "warm_s": 0.85}])
    table = report_fits.starts(archive)
    assert [row[:4] for row in table.rows] == [
        ("vLLM resident", MODEL, "vllm", "80.0 s"),
        ("vLLM prefetch", MODEL, "vllm", "50.0 s"),
    ]
    assert "6.8 s without such a cache, 0.8 s with it" in table.notes[-1]


def test_speed_without_graphs_spreads_most_where_the_ratio_is_largest(archive):
    def eager(model, question, speed):
        row = answer("minillm", "resident-eager", question, speed, path="eager", model=model)
        return row | {"mode": "resident", "key": f"{model}/{question}"}

    rows = [eager(MODEL, 1, 40.0), eager(MODEL, 2, 60.0), eager("Qwen3-1.7B", 1, 70.0)]
    slow = [answer("transformers", "resident", q, s) for q, s in ((1, 1.0), (2, 25.0))]  # for another reason
    store(archive, "vllm", [*rows, *slow, *OURS])
    step = {"key": f"{MODEL}/eager", "model": MODEL, "step": "eager", "tokens_per_s": 90.0}
    store(archive, "fast_path", [step])
    assert report_rows.eager_spread(archive) == (MODEL, 2.25)
    store(archive, "fast_path", [step | {"model": "Qwen3-1.7B", "tokens_per_s": 7.0}])
    assert report_rows.eager_spread(archive) == ("Qwen3-1.7B", 10.0)
    quick = answer("minillm", "resident-eager", 1, 500.0) | {"key": f"{MODEL}/dense/resident-eager"}
    store(archive, "quant", [quick, quick | {"key": f"{MODEL}/int4/resident-eager", "tokens_per_s": 9999.0}])
    store(archive, "fast_path", [step])
    assert report_rows.eager_spread(archive) == (MODEL, 12.5)


def test_prefills_stand_beside_vllm(archive):
    rows = [
        {**answer(engine, "resident", None, None, ttft_s=seconds), "key": f"{MODEL}/{engine}/prefill/1024"}
        for engine, seconds in (("minillm", 0.03), ("vllm", 0.02))
    ]
    for row in rows:
        row["prompt_tokens"] = 1024
    store(archive, "vllm", rows)
    table = report_fits.prefills(archive, "vllm", MODEL)
    assert cells(table, "minillm") == ("minillm", NOT_YET, "30.0 ms", NOT_YET, NOT_YET, "1.50", NOT_YET)


def test_offloaded_beside_vllm(archive):
    ours = {"path": "fast", "budget": 13, "resident": 12, "slots": 1, "host_locked_bytes": 2**33}
    rows = [
        answer("minillm", "prefetch", 1, 6.0, **ours),
        answer("vllm", "prefetch", 1, 5.0, resident=12, slots=2),
    ]
    store(archive, "vllm", rows)
    table = report_streams.beside_vllm(archive)
    first = cells(table, "minillm prefetch, N = 13, fast")
    assert first[1] == "12 + 1"
    assert first[-1] == "3.40"  # 31.5 GB/s over 24 layers of 386 MB
    assert cells(table, "vLLM prefetch, 2 slots")[1] == "12 + 2"
    assert report_rows.ratio(
        archive.get("vllm"), MODEL, "minillm prefetch", "vLLM prefetch"
    ) == pytest.approx(1.2)


@pytest.mark.parametrize(("streamed", "said"), [(24, "the link, 24 layers"), (None, "the link")])
def test_limit_beside_vllm_says_for_how_many_layers(archive, streamed, said):
    ours = {"path": "fast", "budget": 13, "limit_tokens_per_s": 6.2, "streamed": streamed}
    rows = [answer("minillm", "prefetch", 1, 6.0, **ours), answer("vllm", "prefetch", 1, 5.0, slots=2)]
    store(archive, "vllm", rows)
    _, decode, _ = report_figures.beside_vllm(archive).axes
    assert said in [text.get_text() for text in decode.texts]


def test_steps_of_the_fast_path_keep_their_order(archive):
    rows = [
        {"key": f"{MODEL}/minillm/{step}/{n}", "model": MODEL, "tokens_per_s": speed, **TOKENS}
        for step, speed in (("eager", 50.0), ("graph", 150.0))
        for n in range(2)
    ]
    store(archive, "fast_path", rows)
    table = report_fits.fast_path(archive)
    assert [(*row[1:4], row[-1]) for row in table.rows] == [
        ("eager", "50.0", "1.00", "–"),
        ("graph", "150.0", "3.00", "does not fit"),
    ]
    assert table.notes == ("Each step: 2 × 128 (prompts × tokens).",)
    (axes,) = report_figures.steps(archive).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["eager", "graph"]
    assert "6.7 ms instead of 20.0" in axes.figure.get_suptitle()
