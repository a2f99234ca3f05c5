"""README.md: its numbers, its map and its figure are what the code writes today; its links exist."""

import json
import re

import pytest
from command_line import succeeds
from PIL import Image

from experiments import readme
from minillm.estimate import bytes_per_token
from minillm.hardware import PUBLISHED
from minillm.predict import blocks, read_bytes
from minillm.presets import PRESETS
from minillm.quant.mix import quantised

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
    rows = [line.split("|")[1:-1] for line in readme.BLOCKS["vllm"]().splitlines()[2:]]
    for row in rows:
        ours, theirs, ratio = (float(cell) for cell in row[2:5])
        assert ours / theirs == pytest.approx(ratio, abs=0.01)
    assert [row[1].strip() for row in rows] == ["all", "all", "12 of 36"]


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
