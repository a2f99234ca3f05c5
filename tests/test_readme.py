"""README.md: its numbers, its map and its figure are what the code writes today; its links exist."""

import json
import re

import pytest
from PIL import Image

from experiments import readme
from minillm.estimate import bytes_per_token
from minillm.presets import PRESETS

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
