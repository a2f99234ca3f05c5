"""The tokenizer: byte-level BPE trained on the generators' text, one digit a token, Qwen's special tokens.

python -m training.tokenizer --out data/tiny
"""

import argparse
import json
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from training.sample import END_OF_TEXT, TURN_END, TURN_START
from training.skills import REGISTRY, training_random, training_sample

VOCABULARY = 2048
CONTEXT = 4096

# Text between these is never merged with them; the first three also vanish from decoded text on request.
CONTROL = (END_OF_TEXT, TURN_START, TURN_END)
MARKS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")
TAGS = ("<tools>", "</tools>")

# Words with the sign or space before them; single digits; runs of signs; line breaks; spaces.
PIECES = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|[\r\n]+|[^\S\r\n]+(?!\S)|\s+"

TEMPLATE = Path(__file__).with_name("chat_template.jinja")


def corpus(samples=12_000):
    """Texts to learn merges from, an equal number of each skill, without the control tokens."""
    rng = training_random(seed=999)
    for number in range(samples):
        skill = list(REGISTRY)[number % len(REGISTRY)]
        for text, _ in training_sample(rng, skill).segments():
            for mark in CONTROL + MARKS:
                text = text.replace(mark, "\n")
            yield text


def train(texts):
    """A tokenizer with `VOCABULARY` entries at most: all 256 bytes, merges, then the special tokens."""
    tokenizer = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(PIECES), behavior="isolated")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(CONTROL + MARKS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        min_frequency=2,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in CONTROL])
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in MARKS])
    return tokenizer


def settings():
    """What `tokenizer_config.json` holds."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": CONTEXT,
        "eos_token": TURN_END,
        "pad_token": END_OF_TEXT,
        "bos_token": None,
        "unk_token": None,
        "clean_up_tokenization_spaces": False,
        "chat_template": TEMPLATE.read_text(encoding="utf-8").rstrip("\n"),
    }


def save(tokenizer, folder):
    """Write `tokenizer.json` and `tokenizer_config.json` into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    text = json.dumps(settings(), indent=2, ensure_ascii=False)
    (folder / "tokenizer_config.json").write_text(text + "\n", encoding="utf-8")


def main():
    """Train on the generators' text and save."""
    parser = argparse.ArgumentParser(description="Train the tokenizer of the shipped models.")
    parser.add_argument("--out", type=Path, default=Path("data/tiny"), help="folder to write to")
    folder = parser.parse_args().out
    tokenizer = train(corpus())
    save(tokenizer, folder)
    print(f"{tokenizer.get_vocab_size()} entries in {folder}")


if __name__ == "__main__":
    main()
