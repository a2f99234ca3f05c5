"""What only a process of its own can show: start-up, a signal, a closed pipe, the traceback."""

import json
import os
import signal
import subprocess
import sys
import time
from subprocess import PIPE

import pytest
from command_line import CONTEXT, good_model
from conftest import edit_config

from minillm import LLM, SamplingParams

pytestmark = pytest.mark.alone

PROGRAM = (sys.executable, "-m", "minillm")
# One thread: on a busy machine two that wait for each other make a small model many times slower.
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def endless(tmp_path_factory):
    """A model whose context is so long that no test sees its end."""
    folder = good_model(tmp_path_factory.mktemp("endless"))
    edit_config(folder, max_position_embeddings=90_000)
    return folder


def run(*argv: str) -> subprocess.CompletedProcess:
    return subprocess.run([*PROGRAM, *map(str, argv)], capture_output=True, text=True, timeout=180)


@pytest.mark.parametrize("argv", [["--help"], ["generate", "--help"], ["plan", "random:Qwen3-8B"]])
def test_help_and_plan_import_neither_torch_nor_transformers(argv):
    code = (
        "import sys, io; from minillm.__main__ import main; sys.stdout = io.StringIO();"
        f"status = main({argv!r}); loaded = {{'torch', 'transformers', 'numpy'}} & set(sys.modules);"
        "print(status, sorted(loaded), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=180)
    assert done.stderr == "0 []\n"


def test_help_takes_less_than_a_second():
    times = []
    for _ in range(3):
        begin = time.perf_counter()
        done = run("--help")
        times.append(time.perf_counter() - begin)
        assert done.returncode == 0
        assert "generate" in done.stdout
    assert min(times) < 1.0  # the least of three: other work on the machine is not ours


def test_ctrl_c_keeps_the_text_and_gives_130(endless):
    command = [*PROGRAM, "generate", str(endless), "--prompt", "Hi", "--max-new-tokens", "80000"]
    with subprocess.Popen(command, stdout=PIPE, stderr=PIPE, env=ENVIRONMENT) as process:
        begun = process.stdout.read(20)
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=180)
    assert process.returncode == 130
    assert errors == b"minillm: interrupted: the text so far is kept\n"
    # Cut inside a character, the text ends in the bytes that were there of it.
    kept = (begun + rest).decode().removesuffix("\n")[:40].rstrip("\ufffd")
    with LLM(endless) as llm:
        (output,) = llm.generate("Hi", SamplingParams(max_tokens=160))  # a character has up to four tokens
    assert len(kept) >= 5  # twenty bytes and more were read before the signal
    assert output.text.startswith(kept)


def test_a_closed_pipe_ends_silently(endless):
    command = [*PROGRAM, "generate", str(endless), "--prompt", "Hi", "--max-new-tokens", "80000"]
    with subprocess.Popen(command, stdout=PIPE, stderr=PIPE, env=ENVIRONMENT) as process:
        assert len(process.stdout.read(1)) == 1
        process.stdout.close()
        errors = process.stderr.read()
        assert process.wait(timeout=180) == 0
    assert errors == b""


def test_help_into_a_closed_pipe_ends_silently():
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([*PROGRAM, "--help"], stdout=writing, stderr=PIPE, timeout=180)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_a_full_disk_is_one_line():
    with open("/dev/full", "w") as full:
        command = [*PROGRAM, "plan", "random:Qwen3-0.6B"]
        done = subprocess.run(command, stdout=full, stderr=PIPE, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.startswith("minillm: error: the system refused: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.skipif(os.name == "nt", reason="needs a shell that can close a stream")
def test_closed_streams_change_nothing_else():
    plan = f"'{sys.executable}' -m minillm plan random:Qwen3-0.6B"
    whole, deaf = (
        subprocess.run(["sh", "-c", command], stdout=PIPE, timeout=60).stdout.splitlines()
        for command in (plan, f"{plan} 2>&-")
    )
    assert b"main memory" in whole.pop()  # what is free changes from one run to the next
    assert deaf[:-1] == whole
    silent = subprocess.run(["sh", "-c", f"{plan} >&-"], stderr=PIPE, timeout=60)
    assert (silent.returncode, silent.stderr) == (0, b"")


@pytest.mark.skipif(os.name == "nt", reason="needs a shell that can close a stream")
def test_a_closed_stdin_is_the_end_of_the_input(endless):
    chat = f"'{sys.executable}' -m minillm chat '{endless}' <&-"
    done = subprocess.run(["sh", "-c", chat], capture_output=True, env=ENVIRONMENT, timeout=180)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_bytes_on_stdin_that_are_no_text_are_one_line(endless):
    command = [*PROGRAM, "chat", str(endless), "--max-new-tokens", "1"]
    for text, status, lines in (("é".encode(), 0, 0), (b"abc\xff\n", 2, 1)):
        done = subprocess.run(command, input=text, capture_output=True, env=ENVIRONMENT, timeout=180)
        assert (done.returncode, done.stderr.count(b"\n")) == (status, lines)
    assert b"not Unicode at character" in done.stderr


def test_a_prompt_beyond_the_tokenizers_limit_gets_our_line_alone(tmp_path):
    folder = good_model(tmp_path / "model")
    settings = json.loads((folder / "tokenizer_config.json").read_text()) | {"model_max_length": CONTEXT}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    done = run("generate", folder, "--prompt", "x" * (CONTEXT + 1))
    assert done.returncode == 2
    assert done.stderr.startswith(f"minillm: error: --prompt has {CONTEXT + 1} tokens")
    assert done.stderr.count("\n") == 1


def test_what_the_library_thinks_of_a_config_is_not_shown(tmp_path):
    folder = good_model(tmp_path / "model")
    edit_config(folder, eos_token_id=10**6)  # the library warns that it is no token
    content = (folder / "config.json").read_bytes()
    (folder / "config.json").write_bytes(b"\xef\xbb\xbf" + content)  # and cannot read this mark
    done = run("generate", folder, "--prompt", "Hi", "--max-new-tokens", "1")
    assert (done.returncode, done.stderr) == (0, "")


def test_an_error_that_nobody_reads_keeps_its_status():
    reading, writing = os.pipe()
    os.close(reading)
    for argv, status in ((["plan", "random:no-such-model"], 2), (["plan", "random:Qwen3-0.6B"], 0)):
        done = subprocess.run([*PROGRAM, *argv], stdout=PIPE, stderr=writing, timeout=180)
        assert done.returncode == status
    os.close(writing)


def test_the_traceback_is_shown_with_debug_and_only_then():
    quiet = run("plan", "random:no-such-model")
    assert (quiet.returncode, quiet.stderr.count("\n")) == (2, 1)
    loud = run("plan", "random:no-such-model", "--debug")
    assert loud.returncode == 2
    assert "Traceback" in loud.stderr
    assert loud.stderr.endswith(quiet.stderr)


def test_output_is_utf8_whatever_the_locale(endless):
    done = subprocess.run(
        [*PROGRAM, "generate", str(endless), "--prompt", "é", "--max-new-tokens", "40", "--json"],
        capture_output=True,
        env={**ENVIRONMENT, "PYTHONIOENCODING": "ascii"},
        timeout=180,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert "\ufffd" in done.stdout.decode("utf-8")
