"""Ctrl-C at any moment of a command's start: one line and status 130, never a run that goes on."""

import os
import signal
import subprocess
import sys
import threading
import time
from subprocess import PIPE

import pytest

from minillm.cli.interrupts import Interrupts

PROGRAM = (sys.executable, "-m", "minillm")
COMMAND = [*PROGRAM, "generate", "tiny", "--prompt", "x", "--max-new-tokens", "400", "--device", "cpu"]
COMMAND += ["--gpu-layer-budget", "2", "--link-gb-s", "1e-4"]  # it would run for an hour


@pytest.mark.parametrize("moment", ["minillm.errors", "argparse", "minillm.cli.generate", "numpy", "torch"])
def test_ctrl_c_inside_an_import_ends_the_command(moment, tmp_path):
    """The import of `moment` is met by a signal whose KeyboardInterrupt it would swallow."""
    (tmp_path / "sitecustomize.py").write_text(
        f"""
import signal, sys
class Swallow:
    def find_spec(self, name, *_):
        if name == {moment!r} and "minillm.cli.interrupts" in sys.modules:
            sys.meta_path.remove(self)
            try:
                signal.raise_signal(signal.SIGINT)
            except KeyboardInterrupt:
                pass
sys.meta_path.insert(0, Swallow())
"""
    )
    path = os.pathsep.join([str(tmp_path), os.getcwd()])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    done = subprocess.run(COMMAND, capture_output=True, env=environment, timeout=180, check=False)
    assert done.stderr.decode() == "minillm: interrupted: the work was cut short\n"
    assert (done.returncode, done.stdout) == (130, b"")


@pytest.mark.alone
@pytest.mark.parametrize("after", [0.3, 0.6, 1.2, 8.0])
def test_ctrl_c_after_any_time_ends_the_command_soon(after):
    """The last one comes in the middle of a copy of minutes."""
    with subprocess.Popen(COMMAND, stdout=PIPE, stderr=PIPE) as process:
        time.sleep(after)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.startswith(b"minillm: interrupted: ")
    assert errors.count(b"\n") == 1


def test_who_has_taken_the_signal_keeps_it():
    taken = []
    before = signal.signal(signal.SIGINT, lambda *_: taken.append(1))
    try:
        with Interrupts() as interrupts:
            interrupts.open()
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
    assert taken == [1]


def test_other_threads_and_the_time_after_are_left_alone():
    failed = []

    def run():
        try:
            with Interrupts() as interrupts:
                interrupts.open()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    run()
    assert failed == []
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_one_that_came_before_is_raised_when_it_may_be():
    with Interrupts() as interrupts:
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            interrupts.open()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
