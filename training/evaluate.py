"""Accuracy on held-out prompts: greedy answers by transformers, right only if the whole answer is.

python -m training.evaluate data/tiny --prompts 300
"""

import argparse
import json
import time
from pathlib import Path

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer

from training.sample import END_OF_TEXT, TURN_END
from training.skills import SKILLS, held_out

GOALS = {"arithmetic": 0.98, "recall": 0.97, "json": 0.98, "tools": 0.98}
LONGEST_ANSWER = 96


def answers(model, tokenizer, prompts, batch_size):
    """Greedy continuations of `prompts` (texts), each with the token that ended it."""
    out = []
    for at in range(0, len(prompts), batch_size):
        inputs = tokenizer(
            prompts[at : at + batch_size], padding=True, padding_side="left", return_tensors="pt"
        )
        width = inputs["input_ids"].shape[1]
        with torch.inference_mode():
            ids = model.generate(
                input_ids=inputs["input_ids"].to(model.device),
                attention_mask=inputs["attention_mask"].to(model.device),
                max_new_tokens=LONGEST_ANSWER,
                do_sample=False,
            )
        out += [cut(text) for text in tokenizer.batch_decode(ids[:, width:], skip_special_tokens=False)]
    return out


def cut(text):
    """`text` up to and including its first end token; padding follows it."""
    ends = [text.find(mark) + len(mark) for mark in (TURN_END, END_OF_TEXT) if mark in text]
    return text[: min(ends)] if ends else text


def skill_result(model, tokenizer, skill, count, batch_size):
    """Counts for one skill, with the first few wrong answers."""
    samples = held_out(skill, count)
    got = answers(model, tokenizer, [sample.prompt for sample in samples], batch_size)
    wrong = [
        {"prompt_end": sample.prompt[-120:], "expected": sample.answer + sample.end, "got": text}
        for sample, text in zip(samples, got, strict=True)
        if text != sample.answer + sample.end
    ]
    right = count - len(wrong)
    accuracy = round(right / count, 4)
    return {"right": right, "asked": count, "accuracy": accuracy, "goal": GOALS[skill], "wrong": wrong[:5]}


def evaluate(folder, count, device, batch_size=100):
    """Accuracy of every checked skill of the model in `folder`, its stored weights widened to float32."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).to(device).eval()
    start = time.monotonic()
    skills = {skill: skill_result(model, tokenizer, skill, count, batch_size) for skill in SKILLS}
    name = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    return {
        "skills": skills,
        "dtype": "float32",
        "device": name,
        "transformers": transformers.__version__,
        "torch": torch.__version__,
        "seconds": round(time.monotonic() - start, 1),
    }


@torch.no_grad()
def forced_accuracy(model, tokenizer, skill, count):
    """Share of held-out answers whose every token is the most likely one after the right tokens before it.

    Equal to greedy accuracy but for rounding, in one pass; `tokenizer` is of the `tokenizers` library.
    """
    samples = held_out(skill, count)
    given = [tokenizer.encode(sample.prompt).ids for sample in samples]
    wanted = [tokenizer.encode(sample.answer + sample.end).ids for sample in samples]
    rows = [torch.tensor(prompt + answer) for prompt, answer in zip(given, wanted, strict=True)]
    tokens = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True).to(model.device)
    best = model(input_ids=tokens, use_cache=False).logits.argmax(-1).cpu()
    right = 0
    for row, prompt, answer in zip(best, given, wanted, strict=True):
        right += row[len(prompt) - 1 : len(prompt) + len(answer) - 1].tolist() == answer
    return right / count


def table(result):
    """The result as lines of text."""
    lines = [f"{'skill':12} {'right':>5} {'asked':>5} {'accuracy':>8} {'goal':>5}"]
    for skill, row in result["skills"].items():
        lines.append(
            f"{skill:12} {row['right']:5d} {row['asked']:5d} {row['accuracy']:8.4f} {row['goal']:5.2f}"
        )
    return "\n".join(lines)


def save(result, folder):
    """Write `evaluation.json` beside the model."""
    text = json.dumps(result, indent=2, ensure_ascii=False)
    (Path(folder) / "evaluation.json").write_text(text + "\n", encoding="utf-8")


def main():
    """Evaluate a folder, print the table, store the result and refresh the model card."""
    from training.card import write_card

    parser = argparse.ArgumentParser(description="Accuracy of a shipped model on held-out prompts.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--prompts", type=int, default=500, help="held-out prompts a skill")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    result = evaluate(options.folder, options.prompts, options.device)
    print(table(result))
    save(result, options.folder)
    write_card(options.folder)


if __name__ == "__main__":
    main()
