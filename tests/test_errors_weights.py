"""Bad checkpoints, through the command line and the API; each after the good one answered."""

import json
import struct

import pytest
from command_line import FILE, fails, good_model, succeeds
from safetensors.torch import load_file, save_file

from minillm import LLM
from minillm.errors import InputError

ONE_TOKEN = ("--prompt", "Hi", "--max-new-tokens", "1")
INDEX = "model.safetensors.index.json"
SOME = "model.layers.1.self_attn.q_proj.weight"


@pytest.fixture
def folder(tmp_path, capsys):
    """A model that answers: the positive control of every test here."""
    good = good_model(tmp_path / "model")
    succeeds(capsys, "generate", good, *ONE_TOKEN)
    return good


@pytest.fixture
def sharded(folder, capsys):
    """The same in two shards with an index; also answers."""
    tensors = load_file(folder / FILE)
    (folder / FILE).unlink()
    names = sorted(tensors)
    shards = {"model-1.safetensors": names[::2], "model-2.safetensors": names[1::2]}
    for shard, held in shards.items():
        save_file({name: tensors[name] for name in held}, folder / shard)
    weight_map = {name: shard for shard, held in shards.items() for name in held}
    (folder / INDEX).write_text(json.dumps({"weight_map": weight_map}))
    succeeds(capsys, "generate", folder, *ONE_TOKEN)
    return folder


def refused(capsys, folder, *says: str) -> None:
    """`generate` and the API give the same one line."""
    line = fails(capsys, 2, "generate", folder, *ONE_TOKEN, says=says)
    with pytest.raises(InputError) as caught:
        LLM(folder)
    assert line == f"minillm: error: {' '.join(str(caught.value).split())}\n"


def change(folder, **changes) -> None:
    """Store the weights with `changes`; None removes a tensor."""
    tensors = load_file(folder / FILE) | changes
    save_file({name: tensor for name, tensor in tensors.items() if tensor is not None}, folder / FILE)


def test_a_tensor_is_missing(folder, capsys):
    change(folder, **{SOME: None})
    refused(capsys, folder, SOME, "missing")


def test_a_tensor_too_many(folder, capsys):
    change(folder, **{"model.layers.9.extra.weight": load_file(folder / FILE)[SOME]})
    refused(capsys, folder, "model.layers.9.extra.weight", "unknown")


def test_a_tensor_of_another_shape(folder, capsys):
    change(folder, **{SOME: load_file(folder / FILE)[SOME][:-1].clone()})
    refused(capsys, folder, SOME, "[63, 48]", "[64, 48]")


def test_a_tensor_of_another_rank(folder, capsys):
    change(folder, **{SOME: load_file(folder / FILE)[SOME].flatten()})
    refused(capsys, folder, SOME, "[3072]", "[64, 48]")


def test_a_tensor_of_another_kind(folder, capsys):
    change(folder, **{SOME: load_file(folder / FILE)[SOME].int()})
    refused(capsys, folder, SOME, "I32")


@pytest.mark.parametrize("keep", [0, 4, 8, 100, -1])
def test_a_truncated_file(folder, capsys, keep):
    content = (folder / FILE).read_bytes()
    (folder / FILE).write_bytes(content[:keep])
    refused(capsys, folder, FILE)


def header_and_data(folder) -> tuple[dict, bytes]:
    content = (folder / FILE).read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    return json.loads(content[8 : 8 + size]), content[8 + size :]


def write(folder, header: bytes, data: bytes, size: int | None = None) -> None:
    (folder / FILE).write_bytes(struct.pack("<Q", len(header) if size is None else size) + header + data)


def test_the_file_can_be_taken_apart_and_put_together(folder, capsys):
    header, data = header_and_data(folder)
    write(folder, json.dumps(header).encode(), data)
    succeeds(capsys, "generate", folder, *ONE_TOKEN)


def test_a_header_that_promises_more_than_there_is(folder, capsys):
    header, data = header_and_data(folder)
    last = max(header, key=lambda name: header[name].get("data_offsets", [0, 0])[1])
    begin, end = header[last]["data_offsets"]
    header[last] |= {"data_offsets": [begin, 2 * end - begin], "shape": [2 * header[last]["shape"][0], 48]}
    write(folder, json.dumps(header).encode(), data)
    refused(capsys, folder, FILE)


def test_a_header_whose_shape_and_place_differ(folder, capsys):
    header, data = header_and_data(folder)
    header[SOME]["shape"] = [640, 48]
    write(folder, json.dumps(header).encode(), data)
    refused(capsys, folder, FILE)


@pytest.mark.parametrize("size", [0, 5, 2**40, 2**63, 2**64 - 1])
def test_a_header_that_lies_about_its_length(folder, capsys, size):
    header, data = header_and_data(folder)
    write(folder, json.dumps(header).encode(), data, size)
    refused(capsys, folder, FILE)


@pytest.mark.parametrize("header", [b"", b"{", b"[]", b"\xff\xff", b'{"a": 1}', b"{}"])
def test_a_header_that_is_none(folder, capsys, header):
    _, data = header_and_data(folder)
    write(folder, header, data)
    refused(capsys, folder, FILE)


def test_a_file_that_holds_nothing(folder, capsys):
    write(folder, b"{}", b"")
    refused(capsys, folder, "missing")


def test_no_weights(folder, capsys):
    (folder / FILE).unlink()
    (folder / "pytorch_model.bin").write_bytes(b"pickles are not read")
    refused(capsys, folder, str(folder), "no weights", FILE)


def test_weights_are_a_folder(folder, capsys):
    (folder / FILE).unlink()
    (folder / FILE).mkdir()
    refused(capsys, folder, FILE)


def test_a_shard_that_the_index_names_is_missing(sharded, capsys):
    (sharded / "model-2.safetensors").unlink()
    refused(capsys, sharded, "model-2.safetensors", INDEX)


def test_an_index_that_places_a_tensor_wrongly(sharded, capsys):
    index = json.loads((sharded / INDEX).read_text())
    others = {"model-1.safetensors": "model-2.safetensors", "model-2.safetensors": "model-1.safetensors"}
    index["weight_map"][SOME] = others[index["weight_map"][SOME]]
    (sharded / INDEX).write_text(json.dumps(index))
    refused(capsys, sharded, SOME, INDEX)


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        "{}",
        '{"weight_map": {"a": ""}}',
        '{"weight_map": []}',
        '{"weight_map": {}}',
        '{"weight_map": {"a": 5, "b": "x"}}',
    ],
)
def test_an_index_that_is_none(sharded, capsys, content):
    (sharded / INDEX).write_text(content)
    refused(capsys, sharded, INDEX)


@pytest.mark.parametrize("place", ["../{}", "{parent}/{}", "sub/../{}", "..\\{}", "./{}", ".."])
def test_an_index_may_not_lead_out_of_the_folder(sharded, capsys, place):
    index = json.loads((sharded / INDEX).read_text())
    outside = place.format("model-2.safetensors", parent=sharded.parent)
    (sharded / "sub").mkdir()
    (sharded / "model-2.safetensors").rename(sharded.parent / "model-2.safetensors")
    moved = {key: outside if "-2" in file else file for key, file in index["weight_map"].items()}
    (sharded / INDEX).write_text(json.dumps({"weight_map": moved}))
    refused(capsys, sharded, INDEX, repr(outside)[:40])


def test_a_tensor_in_two_shards(sharded, capsys):
    first, second = (load_file(sharded / f"model-{n}.safetensors") for n in (1, 2))
    key = next(iter(first))
    save_file(second | {key: first[key]}, sharded / "model-2.safetensors")
    refused(capsys, sharded, key, "model-1.safetensors and again in model-2.safetensors")


def test_a_single_file_comes_before_an_index_as_in_hugging_faces_loader(sharded, tmp_path, capsys):
    good_model(tmp_path / "single")
    (tmp_path / "single" / FILE).rename(sharded / FILE)
    (sharded / INDEX).write_text("{")
    succeeds(capsys, "generate", sharded, *ONE_TOKEN)


def test_a_model_of_another_size_than_its_weights(folder, capsys):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 4}))
    refused(capsys, folder, "model.layers.3.", "missing")
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 2}))
    refused(capsys, folder, "model.layers.2.", "and 8 more", "unknown")
