"""The tokenizer that a GGUF file describes, as transformers' wrapper around a `tokenizers` one.

Byte-level BPE only, which Qwen3, Llama 3 and SmolLM2 have. The file names the way in which text is split
before merging; those ways are spelled out here, as in the tokenizer.json of the models that use them.
"""

from typing import TYPE_CHECKING

from minillm.checks import as_whole, shown
from minillm.errors import InputError
from minillm.quant.gguf.file import GGUFFile

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend
    from tokenizers.pre_tokenizers import PreTokenizer
    from transformers import PreTrainedTokenizerFast

NORMAL, CONTROL, USER_DEFINED, UNUSED = 1, 3, 4, 5  # token types; 2 is for unknown text, 6 for a byte
TYPES = range(1, 7)
TEMPLATE = "tokenizer.chat_template"
SPECIAL = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPLITS = {  # name in the file → pattern; None: GPT-2's, which the byte-level step brings itself
    "qwen2": _WORDS % r"\p{N}",
    "llama-bpe": _WORDS % r"\p{N}{1,3}",
    "smollm": None,
    "gpt-2": None,
}
ONE_DIGIT = ("smollm",)  # digits are split off one by one first
BEGINS = ("llama-bpe",)  # text begins with the bos token unless the file says otherwise


def read_tokenizer(file: GGUFFile) -> "PreTrainedTokenizerFast":
    """The tokenizer with its special tokens and chat template.

    Raises InputError for another kind of tokenizer, for an unknown way of splitting, and for damaged lists.
    """
    from transformers import PreTrainedTokenizerFast

    kind, split = file.text("tokenizer.ggml.model"), file.text("tokenizer.ggml.pre")
    if kind != "gpt2":
        raise InputError(
            f"{file.path} has a {kind!r} tokenizer: minillm reads gpt2 (byte-level BPE); give token ids"
        )
    if split not in SPLITS:
        raise InputError(
            f"{file.path} splits text in the way {split!r}: minillm knows {', '.join(SPLITS)}; give token ids"
        )
    tokens, types = _lists(file)
    special = {name: _token(file, tokens, types, key) for name, key in SPECIAL.items()}
    try:
        backend = _backend(file, split, tokens, types, special["bos_token"])
    except InputError:
        raise
    except Exception as error:  # the library raises its own kind for merges of unknown tokens
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"{file.path}: the tokenizer's lists contradict each other ({reason})") from None
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        chat_template=None if file.get(TEMPLATE) is None else file.text(TEMPLATE),
        clean_up_tokenization_spaces=False,
        **{name: token for name, token in special.items() if token is not None},
    )


def _lists(file: GGUFFile) -> tuple[list[str], list[int]]:
    tokens, types = file.texts("tokenizer.ggml.tokens"), _types(file)
    if not tokens or len(tokens) != len(types) or len(set(tokens)) != len(tokens):
        raise InputError(
            f"{file.path} has {len(tokens)} tokens, {len(set(tokens))} of them different, with {len(types)} "
            "types: each token needs one type and must be there once; convert the model again"
        )
    return tokens, types


def _types(file: GGUFFile) -> list[int]:
    found = file.get("tokenizer.ggml.token_type", [])
    odd = [kind for kind in found if as_whole(kind) not in TYPES] if isinstance(found, list) else [found]
    if odd:
        raise InputError(
            f"{file.path}: tokenizer.ggml.token_type holds {shown(odd[0])}: it must be a list of whole "
            f"numbers from {TYPES[0]} to {TYPES[-1]}, convert the model again"
        )
    return found


def _token(file: GGUFFile, tokens: list[str], types: list[int], key: str) -> str | None:
    """The token of a role; None where none has it, or one that text can hold: it must not be set apart."""
    index = file.get(f"tokenizer.ggml.{key}_token_id")
    if index is None:
        return None
    if as_whole(index) is None or not 0 <= index < len(tokens):
        raise InputError(f"{file.path}: {key}_token_id is {shown(index)}: it must be below {len(tokens)}")
    return None if types[index] == NORMAL else tokens[index]


def _backend(file: GGUFFile, split: str, tokens: list[str], types: list[int], begin: str | None) -> "Backend":
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, processors

    vocabulary = {t: i for i, (t, kind) in enumerate(zip(tokens, types, strict=True)) if kind != UNUSED}
    merges = [tuple(merge.split(" ")) for merge in file.texts("tokenizer.ggml.merges")]
    whole_words = split == "llama-bpe"  # a word that is a token needs no merges
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=whole_words))
    if split == "qwen2":
        backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = _splitter(split)
    backend.decoder = decoders.ByteLevel()
    begins = file.flag("tokenizer.ggml.add_bos_token", split in BEGINS)
    if begins and begin is not None:
        backend.post_processor = processors.TemplateProcessing(
            single=f"{begin} $A", special_tokens=[(begin, vocabulary[begin])]
        )
    for special in (True, False):
        wanted = CONTROL if special else USER_DEFINED
        added = [t for t, kind in zip(tokens, types, strict=True) if kind == wanted]
        add = backend.add_special_tokens if special else backend.add_tokens
        add([AddedToken(token, normalized=False, special=special) for token in added])
    return backend


def _splitter(split: str) -> "PreTokenizer":
    from tokenizers import Regex, pre_tokenizers

    pattern = SPLITS[split]
    steps = [pre_tokenizers.Digits(individual_digits=True)] if split in ONE_DIGIT else []
    if pattern is not None:
        steps.append(pre_tokenizers.Split(Regex(pattern), behavior="isolated"))
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pattern is None))
    return pre_tokenizers.Sequence(steps)
