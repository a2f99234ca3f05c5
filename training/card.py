"""The model card, written from the stored facts of training and evaluation."""

import json
from pathlib import Path

INTRODUCTIONS = {
    "tiny": "A small Qwen3: sums, recall from a long list, JSON extraction, tool calls, stories, chat.",
    "tiny-moe": "A small Qwen3 mixture of experts with the skills of `tiny`.",
    "tiny-draft": "A two-layer Qwen3 that drafts tokens for `tiny`.",
}

CARD = """\
---
license: apache-2.0
---
# {model}

{introduction}
It was trained from scratch on text that the generators in `training/` write, so nobody's data is in it. It
exists to teach and to test an inference engine; it knows nothing of the world beyond a few dozen facts.

| | |
| --- | --- |
| architecture | {architecture} |
| parameters | {parameters:,}{active} |
| layers × width | {layers} × {width} |
| {mlp} |
| heads | {heads} query, {kv_heads} key/value, {head_dim} wide |
| context | {context:,} tokens |
| vocabulary | {vocabulary:,} byte-level BPE entries, one digit a token |
| stored as | bfloat16 |
| trained on | {tokens:,} tokens in {steps:,} steps, {seconds:.0f} s on one {device} |
| command | `{command}` |

Accuracy on held-out prompts, greedy; an answer counts only if all of it is right ({dtype}, transformers
{version}, torch {torch}, {eval_device}):

| skill | right | asked | accuracy | goal |
| --- | --- | --- | --- | --- |
{rows}

Sums have operands of two digits; recall asks for one of 248 keys in a prompt of 2,000 tokens. Operand pairs,
lists, sentences and requests of these prompts never occur in training. Half of the sums are raw text, all
other prompts use the chat template in `tokenizer_config.json`. Facts and small talk were seen in training and
are not measured.
"""


def mlp_row(config):
    """The card's row on what follows attention in each layer."""
    if not experts(config):
        return f"MLP | {config['intermediate_size']} wide"
    count, chosen = experts(config), config["num_experts_per_tok"]
    return f"experts a layer | {count}, each {config['moe_intermediate_size']} wide; a token uses {chosen}"


def experts(config):
    """Experts of a layer, by the name that transformers stores or the one that Qwen publishes; 0 if none."""
    return config.get("num_local_experts", config.get("num_experts", 0))


def active_note(config, parameters):
    """How many of the `parameters` a token uses, as text; empty where that is all of them."""
    used = used_parameters(config, parameters)
    return f", of which a token uses {used:,}" if used < parameters else ""


def used_parameters(config, parameters):
    """How many of a model's `parameters` a token uses: all but those of experts that it is not sent to."""
    if not experts(config):
        return parameters
    idle = experts(config) - config["num_experts_per_tok"]
    expert = 3 * config["hidden_size"] * config["moe_intermediate_size"]
    return parameters - config["num_hidden_layers"] * idle * expert


def write_card(folder):
    """Write `README.md` in `folder` from its `config.json`, `training.json` and `evaluation.json`."""
    folder = Path(folder)
    config, facts, result = (
        json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
        for name in ("config", "training", "evaluation")
    )
    rows = "\n".join(
        f"| {skill} | {row['right']} | {row['asked']} | {row['accuracy']:.4f} | {row['goal']} |"
        for skill, row in result["skills"].items()
    )
    names = ("model", "parameters", "tokens", "steps", "seconds", "device", "command")
    text = CARD.format(
        **{name: facts[name] for name in names},
        introduction=INTRODUCTIONS[facts["model"]],
        architecture=config["architectures"][0],
        layers=config["num_hidden_layers"],
        width=config["hidden_size"],
        mlp=mlp_row(config),
        active=active_note(config, facts["parameters"]),
        heads=config["num_attention_heads"],
        kv_heads=config["num_key_value_heads"],
        head_dim=config["head_dim"],
        context=config["max_position_embeddings"],
        vocabulary=config["vocab_size"],
        dtype=result["dtype"],
        version=result["transformers"],
        torch=result["torch"],
        eval_device=result["device"],
        rows=rows,
    )
    (folder / "README.md").write_text(text, encoding="utf-8")
