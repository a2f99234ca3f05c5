"""pyproject.toml: what an installed engine needs is named there, and its pins are those that we test."""

import re
import tomllib
from pathlib import Path

from setuptools import find_packages

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PINS = (ROOT / "requirements.txt").read_text(encoding="utf-8")


def test_every_package_and_shipped_model_is_installed():
    code = find_packages(str(ROOT), include=["minillm*"])
    models = {
        f"minillm.shipped.{path.name}": f"data/{path.name}"
        for path in ROOT.glob("data/tiny*")
        if path.is_dir()
    }
    assert models
    settings = PROJECT["tool"]["setuptools"]
    assert sorted(settings["packages"]) == sorted([*code, *models])
    assert settings["package-dir"] == models
    assert settings["package-data"] == {name: ["*"] for name in models}


def test_everything_is_pinned():
    lines = [line for line in PINS.splitlines() if line and not line.startswith("#")]
    assert lines
    assert [
        line for line in lines if not re.fullmatch(r"[a-z0-9-]+==[0-9.]+(; sys_platform == \"linux\")?", line)
    ] == []


def test_pins_cover_the_core_and_the_extras():
    extras = PROJECT["project"]["optional-dependencies"]
    named = [*PROJECT["project"]["dependencies"], *extras["notebooks"], *extras["test"]]
    pins = dict(
        line.split(";")[0].split("==") for line in PINS.splitlines() if "==" in line and line[0] != "#"
    )
    for requirement in named:
        name, relation, version = re.fullmatch(r"([a-z0-9-]+)(>=|==)([0-9.]+)", requirement).groups()
        pinned, least = (tuple(map(int, text.split("."))) for text in (pins[name], version))
        assert pinned >= least if relation == ">=" else pinned == least, requirement


def test_the_core_is_light():
    names = {re.split(r"[><=]", requirement)[0] for requirement in PROJECT["project"]["dependencies"]}
    assert names == {"torch", "safetensors", "transformers", "jinja2"}
