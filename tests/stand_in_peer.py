"""A peer for tests: `python stand_in_peer.py HOW`, asked on standard input as real ones are.

HOW: "whole" prints every row; "fails" prints two rows and ends with status 3; "hangs" prints two rows and
waits, and so does a process that it started; "half" ends in the middle of its third row; "junk" prints no
JSON; "missing" skips. A row's times come from its prompt's length, so that a test knows them.
"""

import json
import subprocess
import sys
import time

SPEED, BYTES = 100.0, 10**6  # tokens a second, of a peak


def rows(asked: dict) -> list[dict]:
    made = [
        {"key": "loaded", "load_s": 7.0, "version": "0", "flags": {}, "kv_tokens": asked.get("kv_tokens")}
    ]
    for request in asked["requests"]:
        tokens = len(request["prompt"])
        row = {name: request[name] for name in ("key", "question_id", "new_tokens")}
        row |= {"prompt_tokens": tokens, "ttft_s": tokens / 1000, "seconds": 0.5, "answer": "x"}
        speed = SPEED if request["new_tokens"] > 1 else None
        made.append(row | {"tokens_per_s": speed, "peak_bytes": BYTES, "reserved_bytes": 2 * BYTES})
    return made


def main(how: str) -> int:
    asked = json.load(sys.stdin)
    if how == "missing":
        print(json.dumps({"skipped": "not here"}))
        return 0
    if how == "junk":
        print("Loading weights")
        return 0
    for number, row in enumerate(rows(asked)):
        if number == 2 and how in ("fails", "hangs", "half"):
            return breaks_off(how)
        print(json.dumps(row), flush=True)
    return 0


def breaks_off(how: str) -> int:
    if how == "half":
        print('{"key": "lo', end="", flush=True)
        return 1
    if how == "hangs":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        print(f"waits with {child.pid}", file=sys.stderr, flush=True)
        time.sleep(60)
    print("out of memory", file=sys.stderr)
    return 3


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
