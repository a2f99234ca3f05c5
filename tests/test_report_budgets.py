"""What the report says of budgets and of the simulator, from small results made by hand."""

import pytest
from matplotlib import pyplot as plt
from small_results import store

from experiments import report_streams, report_tables
from experiments import report_timelines as timelines
from experiments.report_results import Archive
from minillm.predict import Rates, timeline
from minillm.presets import PRESETS
from minillm.schedule import place

MODEL = "Qwen3-8B"


@pytest.fixture
def archive(tmp_path):
    yield Archive(tmp_path)
    plt.close("all")


def test_a_sweep_puts_both_modes_in_one_row(archive):
    row = {"budget": 13, "resident": 12, "streamed": 24, "streamed_bytes": 9261428736, "peak_bytes": 2**32}
    row |= {"limit_tokens_per_s": 6.0, "simulated_tokens_per_s": 5.9, "rtx3070_tokens_per_s": None}
    rows = [
        {"key": f"{mode}/13", "mode": mode, "tokens_per_s": s, **row}
        for mode, s in (("prefetch", 6.0), ("naive", 5.0))
    ]
    store(archive, "budget_sweep", rows)
    expected = ("13 of 36", "9.3 GB", "4.00 GiB", "5.00", "6.00", "1.20", "6.00", "5.90", "too large")
    assert report_streams.sweep(archive).rows == (expected,)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ((0.96, 1.0), "is 0 to 4 % too slow in all 2 placements"),
        ((1.01, 1.03), "is 1 to 3 % too fast in all 2 placements"),
        ((0.94, 1.05, 1.0), "is within 5 % for 2 of 3 placements"),
    ],
)
def test_how_far_a_forecast_was(values, said):
    assert timelines.how_far(values) == said


RATES = Rates(link_gb_s=31.5, device_gb_s=448.0)


def test_the_knee_is_where_the_simulated_curve_bends():
    config = PRESETS[MODEL]
    turn = timelines.knee(config, RATES)
    left, right, whole = timelines.speeds(config, "prefetch", RATES, [int(turn) - 1, int(turn) + 2, 36])
    assert right == pytest.approx(whole, rel=0.01)
    assert left < 0.9 * whole


def test_one_pass_is_cut_out_of_a_timeline():
    config = PRESETS[MODEL]
    found = timeline(config, 2, "prefetch", place(36, 13, 1), RATES)
    single = timelines.one_pass(found)
    copies = sum(e.end - e.begin for e in single.events if type(e.step).__name__ == "Copy")
    computed = sum(e.end - e.begin for e in single.events if type(e.step).__name__ == "Compute")
    assert min(event.begin for event in single.events) == pytest.approx(0.0, abs=1e-9)
    assert max(event.end for event in single.events) == pytest.approx(found.seconds_a_pass)
    assert copies == pytest.approx(24 * timelines.layer_bytes(config) / 31.5e9, rel=1e-6)
    assert computed == pytest.approx(timelines.compute_s(config, RATES), rel=1e-6)


def test_the_card_holds_what_fits_and_no_layer_more():
    config, layer = PRESETS[MODEL], timelines.layer_bytes(PRESETS[MODEL])
    head, kv = 151936 * 4096 * 2, 4096 * 36 * 2 * 1024 * 2
    free = report_tables.LEFT - head - kv
    assert timelines.fitting(config) in (free // layer, free // layer - 1)  # a workspace comes to it
    assert timelines.fitting(PRESETS["Qwen3-1.7B"]) == 28
