"""Takes solutions out of a notebook and puts them back: a block between markers becomes one line."""

import re
from copy import deepcopy

from minillm.errors import InputError

BLANK = "raise NotImplementedError  # your code here"
BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"
# The whole block, from its first line's indentation to the end of its last line; newlines around it stay.
BLOCK = re.compile(rf"^([ \t]*){BEGIN}[ \t]*\n(?:.*\n)*?[ \t]*{END}[ \t]*$", re.MULTILINE)
BLANK_LINE = re.compile(rf"^[ \t]*{re.escape(BLANK)}$", re.MULTILINE)
MARKER = re.compile(r"#[ \t]*(?:begin|end)[ \t]+solution", re.IGNORECASE)


def take_out(notebook: dict, name: str = "the notebook") -> tuple[dict, dict[str, list[str]]]:
    """(student edition, {cell id: its blocks}) of a notebook; without outputs: they answer the predictions.

    InputError with notebook and cell when markers do not pair up, when a cell with solutions has no id of its
    own, or when a blank is there already.
    """
    notebook, solutions = deepcopy(notebook), {}
    notebook["metadata"].pop("widgets", None)
    for number, cell in enumerate(notebook["cells"]):
        source, blocks = blank("".join(cell["source"]), f"{name}, cell {number}")
        if blocks:
            if cell.get("id") in {None, *solutions}:
                raise InputError(
                    f"{name}, cell {number}: its id is missing or used twice; save it in JupyterLab"
                )
            solutions[cell["id"]] = blocks
        cell["source"] = source.splitlines(keepends=True)
        if cell["cell_type"] == "code":
            cell |= {"outputs": [], "execution_count": None}
            cell["metadata"].pop("execution", None)
    return notebook, solutions


def blank(source: str, place: str) -> tuple[str, list[str]]:
    """(source with a blank for each block, the blocks)."""
    blocks = [found[0] for found in BLOCK.finditer(source)]
    text = BLOCK.sub(lambda found: found[1] + BLANK, source)
    # A block holds its own two markers; any more, or one left outside, has lost its partner.
    if MARKER.search(text) or any(len(MARKER.findall(block)) != 2 for block in blocks):
        raise InputError(
            f"{place}: solution markers do not pair up; write {BEGIN!r} and {END!r}, a line each"
        )
    if len(BLANK_LINE.findall(text)) != len(blocks):
        raise InputError(f"{place}: it has the line {BLANK!r} outside a solution; that line marks a blank")
    return text, blocks


def put_back(notebook: dict, solutions: dict[str, list[str]]) -> int:
    """Put blocks in the place of blanks, in cells that still have all of theirs; how many cells that were."""
    count = 0
    for cell in notebook["cells"]:
        blocks, source = solutions.get(cell.get("id"), []), "".join(cell["source"])
        if blocks and len(BLANK_LINE.findall(source)) == len(blocks):
            remaining = iter(blocks)
            text = BLANK_LINE.sub(lambda _, remaining=remaining: next(remaining), source)
            cell["source"] = text.splitlines(keepends=True)
            count += 1
    return count
