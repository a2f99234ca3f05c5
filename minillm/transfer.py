"""One file from a hub: fetched in pieces that survive an interruption, and checked before it counts.

`huggingface_hub` starts a cut file again from nothing (since 2.0) and compares sizes only, so the transfer
is ours: bytes are appended to `<digest>.incomplete`, and the file gets its real name once its digest is
the hub's. Knows nothing of models; `hub.py` decides which files are wanted and where they live.
"""

import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from minillm.errors import RunError

TRIES = 5  # in a row without a new byte
PAUSE_S = 1.0  # between two tries
PIECE_BYTES = 1 << 20
RETRY_STATUS = (408, 429, 500, 502, 503, 504)


@dataclass(frozen=True)
class RemoteFile:
    """What the hub says of a file: `digest` is the sha256 of a large (LFS) file, else git's sha1 of it."""

    name: str
    size: int  # bytes
    digest: str  # hexadecimal; also the file's name among the cache's blobs
    large: bool

    def digest_of(self, path: Path) -> str:
        """The digest of the bytes in `path`, by the rule of this file."""
        state = hashlib.sha256() if self.large else hashlib.sha1(f"blob {path.stat().st_size}\0".encode())
        with path.open("rb") as file:
            while piece := file.read(PIECE_BYTES):
                state.update(piece)
        return state.hexdigest()

    def check(self, path: Path) -> None:
        """Remove `path` and raise RunError unless it has the size and digest that the hub gives."""
        size = path.stat().st_size
        if size != self.size:
            wrong = f"it has {size} bytes, the hub's has {self.size}"
        elif (found := self.digest_of(path)) != self.digest:
            wrong = f"its {'sha256' if self.large else 'git sha1'} is {found}, the hub's is {self.digest}"
        else:
            return
        path.unlink()
        raise RunError(f"{self.name} is corrupt ({wrong}): it was removed, run the same again to fetch it")


def fetch(file: RemoteFile, url: str, blob: Path, arrived: Callable[[int], None]) -> None:
    """Bring `file` to `blob`, going on from what an earlier call left; `arrived(bytes)` as they come.

    Raises RunError when the connection keeps breaking (what came is kept) or the bytes are wrong, and
    what `huggingface_hub` raises when the hub refuses.
    """
    part = blob.with_name(f"{blob.name}.incomplete")
    blob.parent.mkdir(parents=True, exist_ok=True)
    if part.is_file() and part.stat().st_size > file.size:
        part.unlink()
    part.touch()
    arrived(part.stat().st_size)
    _until_complete(file, url, part, arrived)
    file.check(part)
    part.replace(blob)


def _until_complete(file: RemoteFile, url: str, part: Path, arrived: Callable[[int], None]) -> None:
    tries, have = 0, part.stat().st_size
    while have < file.size:
        broke = _append_rest(url, part, arrived)
        grown = part.stat().st_size > have
        have = part.stat().st_size
        if have >= file.size:
            return
        tries = 1 if grown else tries + 1
        if tries >= TRIES:
            raise RunError(
                f"the connection broke at byte {have} of {file.size} of {file.name} ({broke}): "
                "what came is kept, run the same again to go on from there"
            )
        time.sleep(PAUSE_S)


def _append_rest(url: str, part: Path, arrived: Callable[[int], None]) -> str:
    """One request for the missing bytes; returns why it ended, raises where another try cannot help."""
    from huggingface_hub.errors import HfHubHTTPError

    have = part.stat().st_size
    try:
        with _answer(url, have) as response, part.open("ab") as out:
            if have and response.status_code != 206:  # the server ignored the range and sends all of it
                out.truncate(0)
                arrived(-have)
            # No piece size: the client would hold a piece back until it is full, and lose it when cut.
            for piece in response.iter_bytes():
                out.write(piece)
                arrived(len(piece))
    except HfHubHTTPError as error:
        if error.response.status_code not in RETRY_STATUS:
            raise
        return f"the hub answered {error.response.status_code}"
    except network_errors() as error:
        return type(error).__name__
    return "the hub sent too few bytes"


@contextmanager
def _answer(url: str, first_byte: int) -> Iterator:
    from huggingface_hub import constants, get_session
    from huggingface_hub.utils import build_hf_headers, hf_raise_for_status

    # Compressed answers would make neither sizes nor ranges those of the file.
    headers = build_hf_headers() | {"Accept-Encoding": "identity"}
    if first_byte:
        headers["Range"] = f"bytes={first_byte}-"
    timeout = constants.HF_HUB_DOWNLOAD_TIMEOUT
    with get_session().stream(
        "GET", url, headers=headers, timeout=timeout, follow_redirects=True
    ) as response:
        hf_raise_for_status(response)
        yield response


def network_errors() -> tuple[type[Exception], ...]:
    """What the HTTP client of the installed `huggingface_hub` raises (httpx before 2.0, httpx2 since)."""
    from huggingface_hub.errors import HfHubHTTPError

    return (HfHubHTTPError.__bases__[0], ConnectionError)
