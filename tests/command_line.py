"""The command line in this process, and a small model with a tokenizer to give to it."""

import atexit
import functools
import json
import shutil
import tempfile
from pathlib import Path

from minillm.__main__ import main

IM_START, IM_END, END = "<|im_start|>", "<|im_end|>", "<|endoftext|>"
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
VOCABULARY = 259  # bytes and the three special tokens
CONTEXT = 512  # positions


def succeeds(capsys, *argv: str) -> str:
    """stdout of a command that must end with status 0 and leave stderr empty."""
    status = main([str(part) for part in argv])
    out, err = capsys.readouterr()
    assert (status, err) == (0, "")
    return out


def fails(capsys, status: int, *argv: str, says: tuple[str, ...] = ()) -> str:
    """The one line of a command that must end with `status`, print nothing else and name all of `says`."""
    assert main([str(part) for part in argv]) == status
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("minillm: error: ")
    assert err.count("\n") == 1
    assert err.endswith("\n")
    for part in says:
        assert part in err
    return err


@functools.cache
def _good_model() -> Path:
    from conftest import make_reference
    from safetensors.torch import save_file

    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    reference = make_reference(vocab_size=VOCABULARY, max_position_embeddings=CONTEXT)
    reference.config.save_pretrained(folder)
    save_file({name: tensor.contiguous() for name, tensor in reference.state_dict().items()}, folder / FILE)
    _save_tokenizer(folder)
    return folder


FILE = "model.safetensors"


def good_model(folder: Path, tokenizer: bool = True) -> Path:
    """A copy in `folder` of a small random model; its tokens are bytes, so that it answers any text."""
    shutil.copytree(_good_model(), folder, dirs_exist_ok=True)
    if not tokenizer:
        for path in folder.glob("tokenizer*"):
            path.unlink()
    return folder


def _save_tokenizer(folder: Path) -> None:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: index for index, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in (END, IM_START, IM_END)])
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "Qwen2Tokenizer", "chat_template": TEMPLATE, "eos_token": IM_END}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def prompts_file(path: Path, *rows: dict) -> Path:
    """A file of JSON lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def interrupt_after(monkeypatch, decodes: int) -> None:
    """Ctrl-C in the step after so many decode steps; the later ones work again."""
    from minillm.engine import Engine

    decode, steps = Engine._decode, []

    def interrupted(self, *arguments):
        steps.append(1)
        if len(steps) == decodes + 1:
            raise KeyboardInterrupt
        decode(self, *arguments)

    monkeypatch.setattr(Engine, "_decode", interrupted)
