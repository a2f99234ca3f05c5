"""Turns by themselves: what is left unfinished is closed, in a turn, and nobody else notices."""

import threading
import time
from contextlib import contextmanager

import pytest

from minillm.errors import RunError
from minillm.turns import Turns


def noted(events: list, name: str, error: Exception | None = None, held: threading.Event | None = None):
    """Steps that note when they are closed, which may take until `held` is set, and fail."""
    try:
        while True:
            yield name
    finally:
        if held is not None:
            events.append(f"closing {name}")
            assert held.wait(30)
        events.append(name)
        if error is not None:
            raise error


def begun(turns: Turns, *noted_by, **keywords):
    items = turns.each(noted(*noted_by, **keywords))
    next(items)
    return items


def elsewhere(work) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join(30)


def test_what_another_thread_leaves_just_before_a_turn_ends_is_closed():
    ends, closed = [], []

    @contextmanager
    def inside():
        yield
        while ends:
            elsewhere(ends.pop())

    turns = Turns("a model", inside)
    left = begun(turns, closed, "left")
    with turns.take():
        ends.append(left.close)
    assert closed == ["left"]


def test_an_error_while_one_is_closed_leaves_none_open():
    turns, closed = Turns("a model"), []
    items = [begun(turns, closed, *each) for each in (("one", OSError("first")), ("two",), ("three",))]
    turn = turns.take()
    turn.__enter__()
    for each in items:
        elsewhere(each.close)
    assert closed == []
    with pytest.raises(OSError, match="first"):
        turn.__exit__(None, None, None)
    assert sorted(closed) == ["one", "three", "two"]
    with turns.take():
        pass


def test_what_is_left_inside_a_turn_is_closed_after_it():
    """Where it is the thread's own, too: what runs there shall find everything as it was."""
    turns, closed = Turns("a model"), []
    left = begun(turns, closed, "left")

    def steps():
        left.close()
        with turns.take():
            pass
        assert closed == []
        yield "a step"

    assert list(turns.each(steps())) == ["a step"]
    assert closed == ["left"]


def test_ending_all_leaves_alone_what_it_is_called_from():
    turns, closed = Turns("a model"), []
    left = begun(turns, closed, "left")

    def steps():
        with turns.take():
            turns.end_all()
        assert closed == ["left"]
        yield "a step"

    assert list(turns.each(steps())) == ["a step"]
    assert list(left) == []


def test_whoever_comes_while_another_thread_tidies_up_waits_for_it():
    turns, closed, held = Turns("a model"), [], threading.Event()
    left = begun(turns, closed, "left", held=held)
    thread = threading.Thread(target=left.close)
    thread.start()
    while not closed:
        time.sleep(0.01)
    threading.Timer(0.2, held.set).start()
    with turns.take():
        assert closed == ["closing left", "left"]
    thread.join(30)


def test_whoever_comes_while_another_thread_has_a_turn_is_refused_at_once():
    turns, closed, refused = Turns("a model"), [], []
    left = begun(turns, closed, "left")

    def come():
        left.close()
        began = time.perf_counter()
        with pytest.raises(RunError, match="already running"), turns.take():
            pass
        refused.append(time.perf_counter() - began)

    with turns.take():
        elsewhere(come)
    assert refused[0] < 0.5
    assert closed == ["left"]
