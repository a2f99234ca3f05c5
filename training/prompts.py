"""Write `data/prompts_tiny.jsonl`: held-out prompts of every skill, in MT-Bench's question schema.

python -m training.prompts
"""

import argparse
import json
from pathlib import Path

from training import recall
from training.sample import END_OF_TEXT, TURN_END
from training.skills import held_out, recall_of_length

# Lists of these many lines, so that prompts of the file differ in length; the last one fills 2,000 tokens.
RECALL_LINES = (12, 24, 40, 60, 90, 120, 150, 180, 215, recall.HELD_OUT_LINES)
# Words and signs between spaces, each one token or more; the chat format alone is worth six tokens.
FEWEST_WORDS = {END_OF_TEXT: 8, TURN_END: 1}
COUNTS = {"arithmetic": 10, "json": 10, "tools": 10, "stories": 6, "chat": 6}


def rows():
    """Questions as dicts; `answer` is there where exactly one answer is right."""
    samples = [sample for skill, count in COUNTS.items() for sample in of_some_length(skill, count)]
    samples[10:10] = [recall_of_length(lines) for lines in RECALL_LINES]
    for number, sample in enumerate(samples, start=1):
        row = {"question_id": number, "category": sample.skill, "turns": [sample.prompt]}
        yield row if sample.skill == "stories" else row | {"answer": sample.answer}


def of_some_length(skill, count):
    """The first `count` held-out samples of `skill` whose prompt has eight tokens at the very least."""
    return [s for s in held_out(skill, 100) if len(s.prompt.split()) >= FEWEST_WORDS[s.end]][:count]


def main():
    """Write the file."""
    parser = argparse.ArgumentParser(description="Write the shipped models' prompts.")
    parser.add_argument("--out", type=Path, default=Path("data/prompts_tiny.jsonl"))
    out = parser.parse_args().out
    lines = [json.dumps(row, ensure_ascii=False) for row in rows()]
    out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{len(lines)} prompts in {out}")


if __name__ == "__main__":
    main()
