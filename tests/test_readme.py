"""README.md: its numbers, its map and its figure are what the code writes today; its links exist."""

import json
import re
from statistics import median

import pytest
from command_line import succeeds
from PIL import Image

from experiments import readme
from minillm.estimate import bytes_per_token
from minillm.hardware import PUBLISHED
from minillm.predict import blocks, read_bytes
from minillm.presets import PRESETS
from minillm.quant.mix import quantised
from minillm.units import short

TEXT = readme.README.read_text(encoding="utf-8")


def test_blocks_are_up_to_date():
    assert readme.with_blocks(TEXT) == TEXT, "run python -m experiments.readme"


def test_a_stale_block_is_rewritten():
    assert readme.with_blocks(TEXT.replace("| RTX 3070, 8 GB |", "| RTX 3070, 9 GB |")) == TEXT


def test_a_missing_block_is_an_error():
    with pytest.raises(ValueError, match="'course'"):
        readme.with_blocks(TEXT.replace("<!-- course: begin -->", ""))


def test_a_cell_is_bandwidth_over_bytes():
    (row,) = [line for line in TEXT.splitlines() if line.startswith("| RTX 4090")]
    in_8b = row.split("|")[6].strip()
    assert in_8b == f"{1008e9 / bytes_per_token(PRESETS['Qwen3-8B']):.0f}"


def test_the_column_in_4_bits_is_what_plan_says(capsys):
    for name in ("rtx2080ti", "rtx3070", "rtx4090"):
        printed = succeeds(
            capsys, "plan", "random:Qwen3-8B", "--hardware", name, "--quantize", "int4"
        ).splitlines()
        (speed,) = [line.split()[1] for line in printed if line.startswith("speed")]
        (row,) = [line for line in TEXT.splitlines() if line.startswith(f"| {PUBLISHED[name].name} |")]
        assert row.split("|")[8].strip() == speed


@pytest.mark.parametrize("name", ["rtx2080ti", "rtx3070", "rtx4090"])
def test_the_columns_in_16_bits_are_what_plan_says(capsys, name):
    (row,) = [line for line in TEXT.splitlines() if line.startswith(f"| {PUBLISHED[name].name} |")]
    (laptop,) = [line for line in TEXT.splitlines() if line.startswith("| laptop")]
    for column, model in enumerate(readme.MODELS, 4):
        cell, *note = row.split("|")[column].split()
        facts = planned(capsys, f"random:{model}", "--hardware", name)
        speed = facts["speed"].split()[0]
        if note == ["²"]:
            assert float(cell) > float(speed)
            assert cell == laptop.split("|")[column].strip()
        else:
            assert cell == speed
            assert (note == ["¹"]) == ("streamed" in facts["placement"])


def planned(capsys, *words):
    """What `plan` prints, by the name of each line."""
    lines = succeeds(capsys, "plan", *words).splitlines()
    return {line[:18].strip(): line[18:] for line in lines}


def test_what_streaming_gains_on_the_courses_card(capsys):
    streamed, alone = map(
        float, re.search(r"([\d.]+) tokens a second against ([\d.]+) on", readme.stored_note()).groups()
    )
    speed = planned(capsys, "random:Qwen3-8B", "--hardware", "rtx3070")["speed"].split()[0]
    assert f"{streamed:.1f}" == speed
    assert alone == pytest.approx(51.2e9 / bytes_per_token(PRESETS["Qwen3-8B"]), abs=0.005)
    assert 1 < streamed / alone < 1.1, "the text calls it little"


def test_larger_models_in_4_bits_are_what_plan_says(capsys):
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in readme.fewer_table().splitlines()]
    for model, layers, weights, copied, *_, card in rows[-2:]:
        options = ("--hardware", "rtx3070", "--max-model-len", "192", "--quantize", weights)
        facts = planned(capsys, f"random:{model}", *options)
        stay, slots = map(int, re.match(r"(\d+) of \d+ layers .* (\d+) slot", facts["placement"]).groups())
        assert layers.split()[0] == str(stay + slots)
        assert float(copied.split()[0]) == pytest.approx(
            float(facts["copied a token"].split()[0]) * 1.0737, 0.05
        )
        assert short(float(card)) == facts["speed"].split()[0]


def test_a_model_that_fits_the_card_says_so(capsys):
    cells = [line.split("|")[-2].strip() for line in readme.fewer_table().splitlines()[2:]]
    (found,) = [re.search(r"\(fits whole: (\d+)\)", cell) for cell in cells if "(" in cell]
    options = ("--hardware", "rtx3070", "--max-model-len", "192", "--quantize", "int4")
    facts = planned(capsys, "random:Qwen3-8B", *options)
    assert facts["placement"] == "all 36 layers resident"
    assert found[1] == facts["speed"].split()[0]


def test_a_note_says_which_rows_ran_under_the_cap():
    result = json.loads((readme.ROOT / "data/results/budget_sweep__h200.json").read_text(encoding="utf-8"))
    cap, budgets, lifted = (result["settings"][name] for name in ("cap_gib", "budgets", "lifted"))
    said = f"Up to {max(budgets)} layers ran under a cap of {cap} GiB, from {min(lifted)} on without."
    assert said in readme.BLOCKS["sweep"]()


def test_no_speed_is_promised_in_4_bits_on_a_cpu():
    (row,) = [line for line in TEXT.splitlines() if line.startswith("| laptop")]
    assert row.split("|")[8].strip() == "–"
    assert readme.figure_values()["laptop without GPU"][1] is None


def test_the_note_counts_what_the_engine_reads():
    config = quantised(PRESETS["Qwen3-8B"], "int4")
    read = sum(read_bytes(config, block, 2) for block in blocks(config))
    layers, head = re.findall(r"([\d.]+) GB of (?:layers|head)", readme.stored_note())
    assert float(layers) + float(head) == pytest.approx(read / 1e9, abs=0.1)
    assert 4.5e9 < read < 5.2e9, "more than half a byte a weight: scales, and a head in 16 bits"


def test_the_comparison_with_vllm_is_the_files():
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in readme.vllm_table().splitlines()[2:]]
    assert [row[1] for row in rows] == ["all", "all", "12 of 36"]
    for (model, layers, ours, theirs, ratio, memory, _), mode in zip(
        rows, ("resident", "resident", "prefetch"), strict=True
    ):
        mine, others = (answers(f"{model}/{name}/{mode}/") for name in ("minillm", "vllm"))
        assert float(ours) == pytest.approx(median(mine.values()), rel=0.003)
        assert float(theirs) == pytest.approx(median(others.values()), rel=0.003)
        assert float(ratio) == pytest.approx(median(mine[key] / others[key] for key in mine), abs=0.005)
        peaks = [
            row["peak_bytes"] for name in ("minillm", "vllm") for row in beside(f"{model}/{name}/{mode}/peak")
        ]
        counters = 1024 * 4 * (151936 + 151936 // 32)  # bytes, of 1,024 readers and all words
        counted = [0, counters] if layers == "all" else [0]
        expected = [peaks[0] / (peaks[1] - each) for each in counted]
        assert [float(cell) for cell in re.findall(r"[\d.]+", memory)] == pytest.approx(expected, abs=0.005)


def beside(prefix):
    path = readme.ROOT / "data" / "results" / "vllm__h200.json"
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    return [row for row in rows if row["key"].startswith(prefix)]


def answers(prefix):
    """Tokens a second by prompt."""
    return {row["question_id"]: row["tokens_per_s"] for row in beside(prefix) if row.get("question_id")}


def test_vllm_ran_as_the_text_says():
    starts = [row for row in beside("Qwen3-") if "/vllm/" in row["key"] and "/loaded" in row["key"]]
    assert {row["version"].rpartition(".")[0] for row in starts} == {"0.24"}
    shown = [row for row in starts if row["mode"] in ("resident", "prefetch")]
    for row in shown:
        flags = row["flags"]
        assert (flags["load_format"], flags["enable_prefix_caching"]) == ("dummy", False)
        assert flags["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"
        compiling = flags.get("compilation_config")
        if row["mode"] == "resident":
            assert compiling is None
        else:
            assert (compiling["mode"], compiling["cudagraph_mode"], row["slots"]) == (0, "FULL", 2)


def test_notebooks_are_counted():
    there = len(list(readme.ROOT.glob("notebooks/[0-9][0-9]_*.ipynb")))
    assert readme.BLOCKS["there"]().startswith(f"{there} of 21 notebooks")


def test_every_kind_of_result_is_named():
    """Of those that were measured for this page's readers; the others are named where they belong."""
    kinds = {path.name.split("__")[0] for path in (readme.ROOT / "data" / "results").glob("*__*.json")}
    assert {kind for kind in kinds if f"`{kind}`" not in TEXT} <= {"gpu_tests"}


def test_figure_shows_todays_numbers():
    with Image.open(readme.FIGURE) as picture:
        assert json.loads(picture.info["Description"]) == readme.figure_values(), (
            "run python -m experiments.readme"
        )


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_links_lead_somewhere(page):
    links = re.findall(r"\]\(([^)#]+)\)", (readme.ROOT / page).read_text(encoding="utf-8"))
    local = [link for link in links if not link.startswith("http")]
    assert all((readme.ROOT / link).exists() for link in local)
