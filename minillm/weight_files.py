"""Which files hold a model's weights: one file, or the shards that an index names. No torch."""

from collections.abc import Container
from pathlib import Path, PurePosixPath, PureWindowsPath

from minillm.checks import shown
from minillm.config import read_json
from minillm.errors import InputError

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"


def weight_files(names: Container[str], index: Path) -> list[str]:
    """The files to read where `names` exist, none without weights; `index` is read if it decides.

    The single file comes first, as in Hugging Face's own loader. Raises InputError for a bad index.
    """
    if SINGLE in names:
        return [SINGLE]
    return sorted(set(read_weight_map(index).values())) if INDEX in names else []


def files_in(folder: Path) -> list[str]:
    """The weight files that `folder` should have, whether the shards are there or not."""
    here = {name for name in (SINGLE, INDEX) if (folder / name).is_file()}
    return weight_files(here, folder / INDEX)


def read_weight_map(index: Path) -> dict[str, str]:
    """Tensor name → file name of a safetensors index; InputError for a bad one, or a file elsewhere."""
    weight_map = read_json(index, "").get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise InputError(f"{index} has no weight_map: download the file again")
    if odd := [file for file in weight_map.values() if not _is_plain(file)]:
        raise InputError(f"{index} names {shown(odd[0])}, which is no file beside it: download it again")
    return weight_map


def _is_plain(file: object) -> bool:
    """Whether it names a file in the same folder: an index comes from elsewhere and may not lead out."""
    if not isinstance(file, str) or file in ("", ".", "..") or "\0" in file:
        return False
    return PurePosixPath(file).name == file and PureWindowsPath(file).name == file
