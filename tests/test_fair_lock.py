"""The lock of a device: in order, inside its own, free after an error."""

import threading
import time

import pytest

from minillm.accelerators.fair_lock import FairLock

PATIENCE_S = 10


def test_who_waits_comes_before_who_has_just_had_it():
    lock, order = FairLock(), []
    waiting = threading.Thread(target=take, args=(lock, order, "waits"), daemon=True)
    with lock:
        waiting.start()
        time.sleep(0.2)  # it stands in line now
    for _ in range(3):
        take(lock, order, "again")
    waiting.join(PATIENCE_S)
    assert order == ["waits", "again", "again", "again"]


def take(lock, order, name):
    with lock:
        order.append(name)


def test_a_thread_may_take_it_inside_its_own_and_then_another_gets_it():
    lock, order = FairLock(), []
    with lock:
        with lock:
            other = threading.Thread(target=take, args=(lock, order, "other"), daemon=True)
            other.start()
            time.sleep(0.1)
        take(lock, order, "mine")
    other.join(PATIENCE_S)
    assert order == ["mine", "other"]


def test_an_error_inside_gives_it_back():
    lock, order = FairLock(), []
    with pytest.raises(OSError, match="gone"), lock:
        raise OSError("gone")
    other = threading.Thread(target=take, args=(lock, order, "other"), daemon=True)
    other.start()
    other.join(PATIENCE_S)
    assert order == ["other"]


def test_one_thread_at_a_time():
    lock, inside, most = FairLock(), [0], [0]

    def work():
        for _ in range(200):
            with lock:
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                time.sleep(0)
                inside[0] -= 1

    threads = [threading.Thread(target=work, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert not any(thread.is_alive() for thread in threads)
    assert most == [1]


def test_who_is_hit_while_entering_can_enter_again():
    """As a collection in that moment does, when what it finds unused wants the lock."""
    lock, order = FairLock(), []

    def work():
        with lock._next:
            take(lock, order, "inside")
        take(lock, order, "after")

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    assert order == ["inside", "after"]
