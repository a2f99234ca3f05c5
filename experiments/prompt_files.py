"""The prompt files of `data/`."""

import json

from experiments.machine import ROOT


def read_lines(name: str) -> list[dict]:
    """Rows of `data/<name>`, one JSON object a line."""
    text = (ROOT / "data" / name).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]
