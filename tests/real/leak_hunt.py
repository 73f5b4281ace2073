"""A search for secrets in everything that a job exposes: its output, files, command lines and Spark UI."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import re
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, urljoin, urlsplit

import fastavro
import psutil
import pyarrow.parquet as pq

_LINK = re.compile(r"""(?:href|src)=["']([^"'#]+)""")
_PAGES = 400
_API = (
    "environment", "jobs", "stages", "executors", "sql", "storage/rdd", "allexecutors", "allmiscellaneousprocess",
)  # fmt: skip


@dataclass
class Seen:
    """Content that others than the job's owner may see, by place; thread-safe."""

    places: dict[str, bytes] = field(default_factory=dict, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, place: str, text: str | bytes) -> None:
        """Keep the content of a place."""
        with self._lock:
            self.places[place] = text.encode() if isinstance(text, str) else text

    def add_file(self, name: str, body: bytes) -> None:
        """Keep a file's name and content; Parquet and Avro files are kept decoded too."""
        self.add(f"name of {name}", name)
        self.add(name, _unpacked(body))

    def add_folder(self, folder: Path) -> None:
        """Keep all files of a folder."""
        for path in folder.rglob("*"):
            with contextlib.suppress(FileNotFoundError):
                if path.is_file() and not path.is_symlink():
                    self.add_file(str(path), path.read_bytes())

    def leaks(self, secrets: Mapping[str, str]) -> list[str]:
        """Each found secret with its place, plain or in another of its `forms_of`."""
        with self._lock:
            return sorted(
                f"{name} in {place}"
                for name, secret in secrets.items()
                for place, content in self.places.items()
                if any(form in content for form in forms_of(secret))
            )


def forms_of(secret: str) -> set[bytes]:
    """A secret plain, escaped for JSON and URLs, and in base64 at any position of a longer text."""
    whole = secret.encode()
    forms = {whole, json.dumps(secret)[1:-1].encode(), quote(secret).encode(), quote(secret, safe="").encode()}
    for shift in range(3):
        # The characters at both ends hold bits of the neighbours as well.
        encoded = base64.b64encode(b"\0" * shift + whole)
        forms.add(encoded[4 if shift else 0 : len(encoded) // 4 * 4 - 4])
    return forms


@contextlib.contextmanager
def command_lines(seen: Seen) -> Iterator[None]:
    """Keep the command lines of all descendant processes, read every 10 ms."""
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(0.01):
            for process in psutil.Process().children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    line = "\n".join(process.cmdline())
                    seen.add(f"command line {process.pid} {hash(line):x}", line)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def add_spark_ui(seen: Seen, url: str) -> int:
    """Keep the linked pages of a running driver's UI, and its API's answers, at most `_PAGES`; returns their number."""
    application = json.loads(_fetch(f"{url}/api/v1/applications"))[0]["id"]
    waiting = [f"{url}/jobs/", *(f"{url}/api/v1/applications/{application}/{name}" for name in _API)]
    fetched: set[str] = set()
    while waiting and len(fetched) < _PAGES:
        page = waiting.pop(0)
        if page in fetched or "/kill" in page or urlsplit(page).netloc != urlsplit(url).netloc:
            continue
        fetched.add(page)
        body = _fetch(page)
        seen.add(page, body)
        if not page.endswith((".js", ".css", ".svg", ".png")):
            links = _LINK.findall(body.decode(errors="replace"))
            waiting += [urljoin(page, link.replace("&amp;", "&")) for link in links if "/static/" not in link]
    return len(fetched)


def _fetch(url: str) -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=20) as answer:
            body: bytes = answer.read()
            return body
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.read()


def _unpacked(body: bytes) -> bytes:
    if body[:4] == b"PAR1":
        file = pq.ParquetFile(io.BytesIO(body))
        return f"{file.schema_arrow} {file.metadata.metadata} {file.read().to_pylist()}".encode() + body
    if body[:3] == b"Obj":
        reader = fastavro.reader(io.BytesIO(body))
        return f"{reader.metadata} {[*reader]}".encode() + body
    return body
