"""The rules of notebooks as functions over their cells; test_notebook_rules.py applies and tests them."""

import re
from statistics import median

TAGS = {"nbval-ignore-output", "nbval-check-output", "nbval-skip", "nbval-raises-exception", "remove-cell"}
MAX_MEDIAN_LINES, MAX_LINES = 10, 25  # of code cells
MIN_FIGURES = 3
SEEN = "## What we predicted and saw"
REMEMBER = "**Three sentences to remember.**"
PARTS = (
    "**What you will have built.**",
    "**What you need.**",
    "## Predict first",
    SEEN,
    REMEMBER,
    "## Exercises",
    "## Where the same idea lives",
    "## Onwards",
)
# The last notebook is a report: nothing to predict, nothing to exercise, and a summary before everything.
REPORT = "20"
REPORT_PARTS = (
    "**What this is.**",
    "## Summary",
    "## 1. Method",
    "## 10. Where we lose",
    "## 11. Problems met, and how they were solved",
    "## 12. What this cannot show",
    REMEMBER,
    "## References",
)
UNITS = r"tok/s|tokens? (?:a|per) second|GB/s|[GMK]i?B/s|ms|µs|s|seconds?|%|percent|times|×"
MEASURED = re.compile(rf"\b\d[\d.,]*\s?(?:{UNITS})(?![\w/])")


def source(cell: dict) -> str:
    return "".join(cell["source"])


def code_cells(notebook: dict) -> list[dict]:
    """Code cells that hold code."""
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code" and source(cell).strip()]


def faults(notebook: dict, report: bool = False) -> list[str]:
    """What is wrong with a notebook, or with the report, a line each."""
    if report:
        checks = (output_faults, size_faults, report_text_faults, widget_faults, number_faults)
    else:
        checks = (output_faults, size_faults, text_faults, prediction_faults, widget_faults, solution_faults)
    return [fault for check in checks for fault in check(notebook)]


def output_faults(notebook: dict) -> list[str]:
    """Outputs are stored, no error and nothing from stderr among them, and figures."""
    code = code_cells(notebook)
    outputs = [output for cell in code for output in cell["outputs"]]
    found = []
    if not outputs or any(cell["execution_count"] is None for cell in code):
        found.append("outputs are not stored")
    if any(output["output_type"] == "error" for output in outputs):
        found.append("an error is stored")
    if any(output.get("name") == "stderr" for output in outputs):
        found.append("something is stored from stderr")
    if sum(map(is_figure, outputs)) < MIN_FIGURES:
        found.append(f"fewer than {MIN_FIGURES} figures are stored")
    return found


def is_figure(output: dict) -> bool:
    return "image/png" in output.get("data", {})


def size_faults(notebook: dict) -> list[str]:
    """Code cells are short; ids tell cells apart; tags are known."""
    lines = [code_lines(source(cell)) for cell in code_cells(notebook)]
    ids = [cell.get("id") for cell in notebook["cells"]]
    tags = {tag for cell in notebook["cells"] for tag in cell["metadata"].get("tags", [])}
    found = []
    if lines and median(lines) > MAX_MEDIAN_LINES:
        found.append(f"the median code cell has more than {MAX_MEDIAN_LINES} lines")
    if lines and max(lines) > MAX_LINES:
        found.append(f"a code cell has {max(lines)} lines, more than {MAX_LINES}")
    if None in ids or len(set(ids)) < len(ids):
        found.append("cells have no id, or two have the same")
    return found + [f"unknown tag {tag}" for tag in sorted(tags - TAGS)]


def code_lines(text: str) -> int:
    """Lines of a cell; imports are not counted, for nobody reads them one by one."""
    return len([line for line in text.split("\n") if not re.match(r"(import|from) \w", line)])


def report_text_faults(notebook: dict) -> list[str]:
    return text_faults(notebook, REPORT_PARTS)


def text_faults(notebook: dict, parts: tuple[str, ...] = PARTS) -> list[str]:
    """Every part is there, in order; pictures are our own."""
    text = markdown_text(notebook)
    places = {part: re.search(rf"^{re.escape(part)}", text, flags=re.MULTILINE) for part in parts}
    missing = [f"there is no {part!r}" for part, found in places.items() if not found]
    starts = [found.start() for found in places.values() if found]
    found = list(missing)
    if starts != sorted(starts):
        found.append("parts are not in the usual order")
    sentences = text.partition(REMEMBER)[2].partition("\n#")[0]
    if not missing and re.findall(r"^(\d)\. ", sentences, flags=re.MULTILINE) != ["1", "2", "3"]:
        found.append("the sentences to remember are not three")
    if re.search(r"!\[[^]]*\]\(https?:|<img[^>]+https?:", text):
        found.append("a picture comes from elsewhere")
    return found


def markdown_text(notebook: dict) -> str:
    return "\n\n".join(source(cell) for cell in notebook["cells"] if cell["cell_type"] == "markdown")


def number_faults(notebook: dict) -> list[str]:
    """A measured number stands in no text: code takes it from a result."""
    return [f"a number in the text: {found[0]}" for found in MEASURED.finditer(markdown_text(notebook))]


def prediction_faults(notebook: dict) -> list[str]:
    """A learner's guesses, `my_guess… = None`, stand beside the measurement at the end."""
    sources = [source(cell) for cell in notebook["cells"]]
    end = next((number for number, text in enumerate(sources) if SEEN in text), len(sources))
    guesses = re.findall(r"^(my_guess\w*) *=", "\n".join(sources[:end]), flags=re.MULTILINE)
    closing = [source(cell) for cell in notebook["cells"][end:] if cell["cell_type"] == "code"]
    found = [] if guesses else ["nothing is predicted: there is no my_guess… = None"]
    lost = [name for name in guesses if not re.search(rf"\b{name}\b", "\n".join(closing))]
    return found + [f"{name} is not shown again at the end" for name in lost]


def widget_faults(notebook: dict) -> list[str]:
    """After each widget comes a figure that is stored, for readers without a kernel."""
    code = code_cells(notebook)
    after = [following for cell, following in zip(code, [*code[1:], None], strict=True) if is_widget(cell)]
    bare = any(cell is None or not any(map(is_figure, cell["outputs"])) for cell in after)
    return ["a widget has no static figure after it"] if bare else []


def is_widget(cell: dict) -> bool:
    return bool(re.search(r"\binteract\(", source(cell)))


def solution_faults(notebook: dict) -> list[str]:
    """Markers pair up, and stand inside a function: at the margin a blank would stop the notebook."""
    text = [source(cell) for cell in notebook["cells"]]
    found = []
    if not all(map(balanced, text)):
        found.append("solution markers do not pair up")
    if any(re.search(r"^### BEGIN SOLUTION", source, flags=re.MULTILINE) for source in text):
        found.append("a solution stands outside a function")
    return found


def balanced(text: str) -> bool:
    markers = re.findall(r"^\s*### (BEGIN|END) SOLUTION$", text, flags=re.MULTILINE)
    loose = len(re.findall(r"(?i)#\s*(?:begin|end)\s+solution", text))
    return markers == ["BEGIN", "END"] * (len(markers) // 2) and loose == len(markers)
