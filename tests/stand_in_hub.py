"""A hub on 127.0.0.1 that answers what `huggingface_hub` asks, with faults that can be switched on.

Serves one model from a dict of file contents. It keeps a log of the requests and of the bytes that it
sent, so that a test can say what was asked and not only what came out.
"""

import hashlib
import json
import re
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Request:
    """One line of the hub's log."""

    method: str
    path: str
    first_byte: int  # where the asked range starts; 0 without one
    sent: int = 0  # bytes of the file


@dataclass
class Faults:
    """What is broken; all off by default."""

    cut_after: int | None = None  # bytes of a file after which the connection breaks
    cuts: int = 10**9  # how many answers are cut before the hub behaves again
    corrupt: str | None = None  # name of a file whose last byte is sent flipped
    absent: str | None = None  # a file that is listed but answers 404
    status: int | None = None  # every request is answered with this
    error_code: str | None = None  # … and this X-Error-Code
    ignore_range: bool = False
    slow_s: float = 0.0  # pause between pieces of 64 KiB


@dataclass
class StandInHub:
    """`with StandInHub("owner/name", {"config.json": b"..."}) as hub:`, then use `hub.endpoint`."""

    model: str
    files: dict[str, bytes]
    faults: Faults = field(default_factory=Faults)
    log: list[Request] = field(default_factory=list)

    def __enter__(self):
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self.server.hub = self
        self.server.daemon_threads = True
        self.stopping = threading.Event()
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self.stopping.set()
        self.server.shutdown()
        self.server.server_close()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    @property
    def commit(self) -> str:
        """The revision: another one when a file changed, as on a real hub."""
        return _git_sha1("".join(f"{name} {self.digest(name)} " for name in sorted(self.files)).encode())

    def requests(self, name: str) -> list[Request]:
        """The requests for the bytes of a file."""
        return [
            r for r in self.log if r.method == "GET" and r.path.endswith(f"/{name}") and "/resolve/" in r.path
        ]

    def is_large(self, name: str) -> bool:
        """Whether the hub keeps the file in LFS and so knows its sha256."""
        return name.endswith(".safetensors") or name == "tokenizer.json"

    def digest(self, name: str) -> str:
        """ETag of a file: sha256 in LFS, else git's sha1."""
        content = self.files[name]
        if self.is_large(name):
            return hashlib.sha256(content).hexdigest()
        return _git_sha1(content)

    def model_info(self) -> dict:
        siblings = []
        for name, content in self.files.items():
            entry = {"rfilename": name, "size": len(content), "blobId": _git_sha1(content)}
            if self.is_large(name):
                entry["lfs"] = {"sha256": self.digest(name), "size": len(content), "pointerSize": 134}
            siblings.append(entry)
        return {"_id": "0", "id": self.model, "modelId": self.model, "sha": self.commit, "siblings": siblings}

    def tree(self) -> list[dict]:
        entries = []
        for name, content in self.files.items():
            entry = {"type": "file", "path": name, "size": len(content), "oid": _git_sha1(content)}
            if self.is_large(name):
                entry["lfs"] = {"oid": self.digest(name), "size": len(content), "pointerSize": 134}
            entries.append(entry)
        return entries


def _git_sha1(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def hub(self) -> StandInHub:
        return self.server.hub

    def do_GET(self):
        self._answer(with_body=True)

    def do_HEAD(self):
        self._answer(with_body=False)

    def log_message(self, *_):
        pass

    def _answer(self, with_body: bool) -> None:
        asked = re.match(r"bytes=(\d+)-", self.headers.get("Range", ""))
        first = int(asked[1]) if asked and not self.hub.faults.ignore_range else 0
        self.request_entry = Request(self.command, self.path.split("?")[0], int(asked[1]) if asked else 0)
        self.hub.log.append(self.request_entry)
        if self.hub.faults.status:
            return self._refuse(self.hub.faults.status, self.hub.faults.error_code)
        return self._route(first, with_body)

    def _route(self, first: int, with_body: bool) -> None:
        path = self.request_entry.path
        if path.startswith(f"/api/models/{self.hub.model}/tree/"):
            return self._json(self.hub.tree())
        if path in (f"/api/models/{self.hub.model}", f"/api/models/{self.hub.model}/revision/main"):
            return self._json(self.hub.model_info())
        file = re.fullmatch(rf"/{self.hub.model}/resolve/[^/]+/(.+)", path)
        if not file:
            return self._refuse(404, "RepoNotFound")
        if file[1] not in self.hub.files or file[1] == self.hub.faults.absent:
            return self._refuse(404, "EntryNotFound")
        return self._file(file[1], first, with_body)

    def _json(self, value) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _refuse(self, status: int, code: str | None) -> None:
        self.send_response(status)
        if code:
            self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _file(self, name: str, first: int, with_body: bool) -> None:
        content = self.hub.files[name]
        self.send_response(206 if first else 200)
        self.send_header("ETag", f'"{self.hub.digest(name)}"')
        self.send_header("X-Repo-Commit", self.hub.commit)
        self.send_header("Content-Length", str(len(content) - first))
        if self.hub.is_large(name):
            self.send_header("X-Linked-ETag", f'"{self.hub.digest(name)}"')
            self.send_header("X-Linked-Size", str(len(content)))
        if first:
            self.send_header("Content-Range", f"bytes {first}-{len(content) - 1}/{len(content)}")
        self.end_headers()
        if with_body:
            self._send(name, content, first)

    def _send(self, name: str, content: bytes, first: int) -> None:
        if name == self.hub.faults.corrupt:
            content = content[:-1] + bytes([content[-1] ^ 1])
        faults, stop = self.hub.faults, len(content)
        if faults.cut_after is not None and faults.cuts and stop - first > faults.cut_after:
            faults.cuts -= 1
            stop = first + faults.cut_after
            self.close_connection = True
        for start in range(first, stop, 65536):
            piece = content[start : min(start + 65536, stop)]
            self.wfile.write(piece)
            self.request_entry.sent += len(piece)
            if self.hub.stopping.wait(faults.slow_s):
                return
