"""A model from a hub of Hugging Face's kind: downloaded once, resumable, every byte checked.

Files land in the cache that all Hugging Face tools share (`HF_HOME`), so nothing is fetched twice. Only
what the engine reads is fetched: configuration, tokenizer, safetensors. `huggingface_hub` lists, names and
links the files; `transfer.py` moves and checks them. `HF_ENDPOINT` and `HF_TOKEN` work as usual.
"""

import re
import shutil
import warnings
from dataclasses import dataclass
from pathlib import Path

from minillm.config import ModelConfig
from minillm.errors import InputError, RunError
from minillm.hub_errors import endpoint, explained, status_of
from minillm.transfer import RemoteFile, fetch, network_errors
from minillm.units import gib
from minillm.weight_files import INDEX, files_in, weight_files

CONFIG_FILES = ("config.json", "generation_config.json")
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.json",
    "merges.txt",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
)
_PART = r"[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?"
MAX_ID = 96  # characters


def is_hub_id(text: str) -> bool:
    """Whether `text` is spelt like `owner/name`, by the rules of the Hugging Face hub."""
    if len(text) > MAX_ID or "--" in text or ".." in text or text.endswith(".git"):
        return False
    return re.fullmatch(f"{_PART}/{_PART}", text) is not None


def download(hub_id: str, *, config_only: bool = False, recheck: bool = False) -> Path:
    """Make the model available locally and return its folder.

    A copy in the cache that came by this function is used without asking the network; one that another
    tool left may lack small files, which are fetched if the hub can be reached. With `recheck` the hub is
    asked for the newest files, and the bytes that are already here are checked too. The configuration
    comes first: InputError for a model that minillm cannot read, before its weights are fetched. Also
    InputError for a text that is no hub id; RunError without network, for an unknown or gated model, and
    for wrong bytes.
    """
    if not is_hub_id(hub_id):
        raise InputError(f"{_cut(hub_id)!r} is not a hub id: write it as owner/name, like Qwen/Qwen3-0.6B")
    with explained(hub_id):
        cached = cached_folder(hub_id, config_only)
        ours = cached is not None and (config_only or _marker(cached).is_file())
        if ours and not recheck:
            return cached
        try:
            commit, files = _listing(hub_id)
        except network_errors() as error:
            if cached is None or (recheck and status_of(error)):
                raise
            lacks = "" if ours else ", it may lack files such as the tokenizer"
            line = f"cannot reach {endpoint()}: the copy in the cache is used unchecked{lacks}"
            warnings.warn(line, stacklevel=2)
            return cached
        return _Download(hub_id, commit, files).run(config_only, recheck)


def _cut(text: str) -> str:
    return text if len(text) <= MAX_ID else f"{text[:MAX_ID]}…"


def cached_folder(hub_id: str, config_only: bool = False) -> Path | None:
    """The folder of a copy in the cache with a configuration and all weights, or None."""
    from huggingface_hub import constants, try_to_load_from_cache

    config = try_to_load_from_cache(hub_id, "config.json", cache_dir=constants.HF_HUB_CACHE)
    if not isinstance(config, str):
        return None
    folder = Path(config).parent
    return folder if config_only or _has_weights(folder) else None


def _has_weights(folder: Path) -> bool:
    try:
        names = files_in(folder)
    except InputError:  # a damaged index; the hub has a whole one
        return False
    return bool(names) and all((folder / name).is_file() for name in names)


def _marker(folder: Path) -> Path:
    """A file that says of a snapshot folder that every file which the hub has for it was fetched."""
    return folder.parent.parent / f"minillm-{folder.name}.complete"


def _listing(hub_id: str) -> tuple[str, dict[str, RemoteFile]]:
    """Commit and files of the newest revision."""
    from huggingface_hub import HfApi

    info = HfApi(endpoint=endpoint()).model_info(hub_id, files_metadata=True, timeout=10)
    files = {}
    for entry in info.siblings or []:
        digest = entry.lfs.sha256 if entry.lfs else entry.blob_id
        if re.fullmatch(r"[0-9a-f]{40,64}", digest or "") and entry.size is not None:
            files[entry.rfilename] = RemoteFile(entry.rfilename, entry.size, digest, bool(entry.lfs))
    return info.sha, files


@dataclass
class _Download:
    hub_id: str
    commit: str
    files: dict[str, RemoteFile]

    def run(self, config_only: bool, recheck: bool) -> Path:
        from huggingface_hub.utils import WeakFileLock

        self.storage.mkdir(parents=True, exist_ok=True)
        with WeakFileLock(self.storage / "minillm.lock"):
            if "config.json" not in self.files:
                raise RunError(
                    f"{self.hub_id} has no config.json on {endpoint()}: it is no Transformers model"
                )
            folder = self._have(self._named(CONFIG_FILES if config_only else (*CONFIG_FILES, INDEX)), recheck)
            ModelConfig.from_folder(folder)  # refuses what cannot be read, before gigabytes are fetched
            if not config_only:
                weights = self._weights(folder / INDEX)
                self._have(self._named(TOKENIZER_FILES) + weights, recheck)
                _marker(folder).touch()
            return folder

    def _have(self, names: list[str], recheck: bool) -> Path:
        """Fetch what is missing of `names`, then link all; returns the snapshot's folder."""
        self._bring(names, recheck)
        return self._linked(names)

    @property
    def storage(self) -> Path:
        from huggingface_hub import constants

        return Path(constants.HF_HUB_CACHE) / f"models--{self.hub_id.replace('/', '--')}"

    def _named(self, names: tuple[str, ...]) -> list[str]:
        return [name for name in names if name in self.files]

    def _blob(self, name: str) -> Path:
        return self.storage / "blobs" / self.files[name].digest

    def _weights(self, index: Path) -> list[str]:
        names = weight_files(self.files, index)
        if not names:
            raise RunError(
                f"{self.hub_id} has no safetensors weights on {endpoint()}: choose a model that has"
            )
        missing = [name for name in names if name not in self.files]
        if missing:
            raise RunError(
                f"{missing[0]} is named in {INDEX} but missing on {endpoint()} ({len(missing)} of "
                f"{len(names)} files of {self.hub_id}): tell its owner, or choose another model"
            )
        return names

    def _bring(self, names: list[str], recheck: bool) -> None:
        """Have every file among the blobs, checked."""
        absent = [name for name in names if not self._blob(name).is_file()]
        for name in names:
            if name not in absent and (recheck or self._blob(name).stat().st_size != self.files[name].size):
                self.files[name].check(self._blob(name))
        self._check_space(absent)
        with _progress(self.hub_id, sum(self.files[name].size for name in absent)) as bar:
            for name in absent:
                self._fetch(name, bar)

    def _fetch(self, name: str, bar) -> None:
        from huggingface_hub import hf_hub_url

        bar.set_postfix_str(name)
        url = hf_hub_url(self.hub_id, name, revision=self.commit, endpoint=endpoint())
        try:
            fetch(self.files[name], url, self._blob(name), bar.update)
        except network_errors() as error:
            if status_of(error) != 404:
                raise
            raise RunError(
                f"{name} of {self.hub_id} is listed but missing on {endpoint()}: "
                "try again later, or tell its owner"
            ) from None

    def _check_space(self, names: list[str]) -> None:
        parts = [self._blob(name).with_name(f"{self._blob(name).name}.incomplete") for name in names]
        here = sum(part.stat().st_size for part in parts if part.is_file())
        needed = sum(self.files[name].size for name in names) - here
        free = shutil.disk_usage(self.storage).free
        if needed > free:
            raise RunError(
                f"{self.hub_id} needs {gib(needed)} on disk, {gib(free)} are free in {self.storage.parent}: "
                "free some, or set HF_HOME to a larger disk"
            )

    def _linked(self, names: list[str]) -> Path:
        """The snapshot folder that names the blobs; `huggingface_hub` finds them and fetches nothing."""
        from huggingface_hub import constants, snapshot_download

        folder = snapshot_download(
            self.hub_id,
            allow_patterns=names,
            endpoint=endpoint(),
            cache_dir=constants.HF_HUB_CACHE,
            tqdm_class=_silent_bar(),
        )
        if Path(folder).name != self.commit:
            raise RunError(f"{self.hub_id} changed on the hub during the download: run the same again")
        return Path(folder)


def _progress(title: str, total: int):
    """A bar on stderr, shown only if that is a terminal and there is something to fetch."""
    from huggingface_hub.utils import are_progress_bars_disabled
    from tqdm import tqdm

    off = True if are_progress_bars_disabled() or not total else None
    return tqdm(total=total, desc=title, unit="B", unit_scale=True, disable=off)


def _silent_bar() -> type:
    from tqdm import tqdm

    class Silent(tqdm):
        def __init__(self, *args, **kwargs):
            kwargs.pop("name", None)
            super().__init__(*args, **{**kwargs, "disable": True})

    return Silent
