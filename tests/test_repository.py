"""The rules of this repository, held by tests; each rule is first shown to catch a case that breaks it."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import rules

ROOT = Path(__file__).resolve().parent.parent
CODE = [
    path
    for folder in ("minillm", "tests", "experiments", "training")
    for path in ROOT.glob(f"{folder}/**/*.py")
]
ENGINE = [path for path in CODE if path.is_relative_to(ROOT / "minillm")]
MAX_FILE_LINES, MAX_FUNCTION_LINES = 300, 50
MAX_TREE_BYTES = 45 * 2**20


def found(paths, fault):
    """{relative path: fault} for each file whose text has one."""
    faults = {str(path.relative_to(ROOT)): fault(path.read_text(encoding="utf-8")) for path in paths}
    return {name: value for name, value in faults.items() if value}


@pytest.fixture(scope="module")
def tracked() -> list[Path]:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout: nothing says which files are tracked")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    paths = [ROOT / name for name in listed.decode().split("\0") if name]
    return [path for path in paths if path.is_file()]


# ---- size ----


def test_long_functions_are_found():
    body = "def short():\n    pass\n\n\ndef long():\n" + "    pass\n" * 5
    assert rules.long_functions(body, limit=5) == ["long"]


def test_files_and_functions_are_short():
    assert len(CODE) > 20
    assert found(CODE, lambda text: max(0, len(text.splitlines()) - MAX_FILE_LINES)) == {}
    assert found(CODE, lambda text: rules.long_functions(text, MAX_FUNCTION_LINES)) == {}


def test_tracked_tree_is_small(tracked):
    assert sum(path.stat().st_size for path in tracked) <= MAX_TREE_BYTES


# ---- what the engine may import ----


@pytest.mark.parametrize(
    "line",
    [
        "from transformers import Qwen3ForCausalLM",
        "from transformers.models.qwen3.modeling_qwen3 import Qwen3Model",
        "import transformers\ntransformers.AutoModel.from_pretrained('x')",
        "import transformers as t\nt.AutoModelForCausalLM",
        "from transformers.generation import GenerationMixin",
    ],
)
def test_model_classes_are_found(line):
    assert rules.forbidden_model_classes(line)


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("from torch.nn import RMSNorm", "RMSNorm"),
        ("from torch import nn\nnn.MultiheadAttention(8, 2)", "MultiheadAttention"),
        ("import torch\ntorch.nn.SiLU()", "SiLU"),
        ("import torch.nn as layers\nlayers.Sequential()", "Sequential"),
        ("from torch.nn.modules.linear import Bilinear", "Bilinear"),
    ],
)
def test_layers_of_torch_are_found(line, name):
    assert rules.forbidden_layers(line) == {name}


def test_what_is_allowed_is_not_found():
    assert not rules.forbidden_model_classes("from transformers import AutoTokenizer, AutoConfig")
    assert not rules.forbidden_layers(
        "from torch import nn\nfrom torch.nn import functional as F, Linear\nnn.Module"
    )
    assert not rules.forbidden_layers("from torch.nn.functional import silu")


def test_engine_has_no_model_class_of_transformers():
    assert found(ENGINE, rules.forbidden_model_classes) == {}


def test_engine_builds_its_own_layers():
    assert found(ENGINE, rules.forbidden_layers) == {}


# ---- starting ----


def run_python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout


def test_import_leaves_torch_alone():
    assert run_python("import sys, minillm; print('torch' in sys.modules)").split() == ["False"]
    assert run_python("import sys, torch; print('torch' in sys.modules)").split() == ["True"]


def test_help_leaves_torch_alone():
    code = """
import runpy, sys
sys.argv = ["minillm", "--help"]
try:
    runpy.run_module("minillm", run_name="__main__")
except SystemExit as left:
    print("left with", left.code, "torch" in sys.modules)
"""
    assert "left with 0 False" in run_python(code)


def test_help_is_quick():
    def seconds() -> float:
        began = time.perf_counter()
        subprocess.run([sys.executable, "-m", "minillm", "--help"], cwd=ROOT, capture_output=True, check=True)
        return time.perf_counter() - began

    # The best of three: a busy machine delays one start, not every one.
    assert min(seconds() for _ in range(3)) < 1.0


# ---- tracked files ----


def test_home_paths_are_found():
    for path in ("/hom" + "e/anna/x", "/User" + "s/anna/x", "/roo" + "t/.cache"):
        assert rules.HOME_PATH.search(f"see {path}")
    assert not rules.HOME_PATH.search("homework/exercise, and a url path like https://example.org/users")


def test_no_path_of_somebodys_machine(tracked):
    texts = [
        path
        for path in tracked
        if path.suffix in {".py", ".md", ".ipynb", ".json", ".sh", ".toml", ".txt", ".cfg"}
    ]
    assert len(texts) > 20
    assert found(texts, rules.HOME_PATH.findall) == {}
