"""A Hugging Face hub on this machine: just enough of its protocol for one small repository."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar
from urllib.parse import unquote, urlparse

COMMIT = "a" * 40


class Hub(BaseHTTPRequestHandler):
    """Serves ``repositories``: name to file name to content; other names are unknown, gated,
    broken, or dropped without an answer."""

    repositories: ClassVar[Mapping[str, Mapping[str, bytes]]] = {}
    requested: ClassVar[list[str]] = []

    def log_message(self, *_: object) -> None:
        """Stay silent."""

    def reply(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def refuse(self, code: str) -> None:
        """Answer as the hub does for repositories and files that one may not see."""
        status = {"GatedRepo": 403, "Broken": 500}.get(code, 404)
        self.reply(status, X_Error_Code=code, X_Error_Message=code)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = unquote(urlparse(self.path).path)
        self.requested.append(path)
        parts = path.strip("/").split("/")
        name = "/".join(parts[2:4] if parts[0] == "api" else parts[:2])
        if name.startswith("dropped/"):
            self.close_connection = True
        elif name.startswith("gated/"):
            self.refuse("GatedRepo")
        elif name.startswith("broken/"):
            self.refuse("Broken")
        elif name not in self.repositories:
            self.refuse("RepoNotFound")
        elif parts[0] == "api":
            self.answer_api(name, parts[4:])
        else:
            self.answer_file(name, "/".join(parts[4:]))

    def answer_api(self, name: str, rest: list[str]) -> None:
        """Answer about the repository, or list its files."""
        files = self.repositories[name]
        if rest and rest[0] == "tree":
            entries = [
                {"type": "file", "path": path, "size": len(data), "oid": self.etag(data)}
                for path, data in files.items()
            ]
            self.reply(200, json.dumps(entries).encode(), Content_Type="application/json")
            return
        siblings = [{"rfilename": path} for path in files]
        body = {"id": name, "modelId": name, "sha": COMMIT, "siblings": siblings, "tags": []}
        self.reply(200, json.dumps(body).encode(), Content_Type="application/json")

    def answer_file(self, name: str, path: str) -> None:
        """Answer with a file."""
        data = self.repositories[name].get(path)
        if data is None:
            self.refuse("EntryNotFound")
            return
        self.reply(200, data, ETag=f'"{self.etag(data)}"', X_Repo_Commit=COMMIT)

    @staticmethod
    def etag(data: bytes) -> str:
        return hashlib.sha1(data).hexdigest()


@contextmanager
def serving(repositories: Mapping[str, Mapping[str, bytes]]) -> Iterator[tuple[str, list[str]]]:
    """Serve repositories; yields the address and the list of requested paths."""
    requested: list[str] = []
    handler = type("Handler", (Hub,), {"repositories": repositories, "requested": requested})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", requested
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
