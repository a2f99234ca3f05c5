"""A bar where somebody watches, unless TQDM_DISABLE says that nobody does."""

import pytest

from minillm import progress


@pytest.fixture(params=["terminal", "notebook"])
def watched(request, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: request.param == "terminal", raising=False)
    monkeypatch.setattr(progress, "_in_notebook", lambda: request.param == "notebook")
    monkeypatch.delenv("TQDM_DISABLE", raising=False)


def has_bar() -> bool:
    with progress.Progress("making", 3, "tensor") as shown:
        shown.advance()
        return shown.bar is not None


def test_a_bar_where_somebody_watches(watched):
    assert has_bar()


@pytest.mark.parametrize(("value", "bar"), [("1", False), ("0", True), ("", True)])
def test_tqdm_disable_silences_it(watched, monkeypatch, value, bar):
    monkeypatch.setenv("TQDM_DISABLE", value)
    assert has_bar() == bar


def test_no_bar_where_nobody_watches(monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: False, raising=False)
    monkeypatch.setattr(progress, "_in_notebook", lambda: False)
    assert not has_bar()
