"""Small notebooks for the tests of the student edition."""

BLOCK = "    ### BEGIN SOLUTION\n    return 2 * x\n    ### END SOLUTION"
CELL = f"def double(x):\n{BLOCK}\n"


def code(source: str, name: str) -> dict:
    output = {"output_type": "stream", "name": "stdout", "text": ["seen"]}
    return {
        "cell_type": "code",
        "id": name,
        "metadata": {},
        "execution_count": 3,
        "outputs": [output],
        "source": source.splitlines(keepends=True),
    }


def notebook(*sources: str) -> dict:
    cells = [code(source, f"c{number}") for number, source in enumerate(sources)]
    return {"cells": cells, "metadata": {"widgets": {}}, "nbformat": 4, "nbformat_minor": 5}


def sources(made: dict) -> list[str]:
    return ["".join(cell["source"]) for cell in made["cells"]]
