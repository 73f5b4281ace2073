"""Input logs: a generated access log as JSON lines, and a real log, repeated. Kept in the user's cache.

``python -m bench.logs [--rows 6400000]`` makes the generated log ahead and prints its folder.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from tests.real.toolchain import kept

FILES = 16
ROWS = 6_400_000
"""About 2 GB."""

BYTES_A_ROW = 320
"""Mean of the generated log's lines."""

COLUMNS = {
    "ts": "timestamp",
    "request_id": "string",
    "ip": "string",
    "host": "string",
    "method": "string",
    "path": "string",
    "status": "int",
    "bytes": "bigint",
    "duration_s": "double",
    "user": "string",
    "referer": "string",
    "agent": "string",
}
"""Columns of the generated log, as in a job file's schema and in Spark's."""

STATUS_COLUMNS = {
    "version": "int",
    "nginx_version": "string",
    "address": "string",
    "generation": "int",
    "load_timestamp": "bigint",
    "timestamp": "bigint",
    "pid": "bigint",
    "processes": "struct<respawned:int>",
    "connections": "struct<accepted:bigint,dropped:bigint,active:int,idle:int>",
    "requests": "struct<total:bigint,current:int>",
    "server_zones": "map<string,struct<processing:int,requests:bigint,discarded:bigint,received:bigint,sent:bigint>>",
    "upstreams": "string",
    "caches": "string",
}
"""Columns of the real log, status records of nginx plus: nested, and text for objects whose names are data."""

_VERSION = "1"
_BATCH = 10_000
_BEGAN_S = int(datetime(2026, 3, 1, tzinfo=UTC).timestamp())
_AGENTS = (
    "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0.0.0 Safari/537.36",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) Mobile/15E148",
    "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64; rv:127.0) Gecko/20100101 Firefox/127.0",
    "python-requests/2.32.3",
    "curl/8.5.0",
)
_METHODS = ("GET", "POST", "HEAD", "PUT")
_STATUS = (200, 204, 301, 304, 404, 500, 503)
_HOSTS = ("www.example.com", "api.example.com", "static.example.com")
_REFERERS = ("null", '"https://www.example.com/"', '"https://example.com/?q=tides"', '"-"')
_PATHS = ("/", "/login", "/static/app.js", "/api/v1/items", "/api/v1/orders", "/img/logo.svg", "/search")


@dataclass(frozen=True)
class Log:
    """An input log.

    Attributes:
        folder: holds files ``*.jsonl`` and nothing else.
        rows: lines in them.
        columns: column → SQL type.
    """

    folder: Path
    rows: int
    columns: dict[str, str]

    @property
    def bytes(self) -> int:
        """Size of all files."""
        return sum(path.stat().st_size for path in self.folder.iterdir())

    @property
    def ddl(self) -> str:
        """The columns as Spark's DDL."""
        return ", ".join(f"`{name}` {kind}" for name, kind in self.columns.items())


def generated(rows: int, files: int = FILES) -> Log:
    """An access log of about 320 B a line: text, numbers, nulls, and missing fields; made once."""
    recipe = f"{Path(__file__).name} {_VERSION} {rows} rows {files} files"

    def make(folder: Path) -> None:
        with ProcessPoolExecutor(2) as pool:
            list(pool.map(partial(_write, folder, rows, files), range(files)))

    return Log(kept(f"bench-log-{rows}", recipe, make), rows, COLUMNS)


def parted(rows: int, parts: int, files: int = FILES) -> Log:
    """The generated log with one more column, ``part``; made once.

    Args:
        rows: number of rows.
        parts: number of values of ``part``, which come in turn.
        files: number of files.
    """
    recipe = f"{Path(__file__).name} {_VERSION} {rows} rows {parts} parts {files} files"

    def make(folder: Path) -> None:
        with ProcessPoolExecutor(2) as pool:
            list(pool.map(partial(_write, folder, rows, files, parts=parts), range(files)))

    return Log(kept(f"bench-log-{rows}-{parts}", recipe, make), rows, COLUMNS | {"part": "string"})


def repeated(source: Path, mb: int, files: int = 8) -> Log:
    """A real log of JSON lines, repeated up to a size; made once.

    Args:
        source: the log.
        mb: approximate size, in 10^6 bytes.
        files: number of files.
    """
    text = source.read_bytes()
    if not text.endswith(b"\n"):
        text += b"\n"
    times = max(1, mb * 1_000_000 // len(text) // files)

    def make(folder: Path) -> None:
        for number in range(files):
            with (folder / f"status-{number:03d}.jsonl").open("wb") as out:
                for _ in range(times):
                    out.write(text)

    folder = kept(f"bench-{source.stem}-{mb}", f"{len(text)} bytes {mb} MB {files} files", make)
    return Log(folder, text.count(b"\n") * times * files, STATUS_COLUMNS)


def lines(rows: int, seed: int) -> Iterator[str]:
    """Lines with their ends; the same arguments give the same lines."""
    draw = random.Random(seed)
    micros = (_BEGAN_S + seed * 86_400) * 1_000_000
    while rows > 0:
        count = min(rows, _BATCH)
        rows -= count
        drawn = zip(
            draw.choices(_METHODS, (80, 15, 3, 2), k=count),
            draw.choices(_PATHS, k=count),
            draw.choices(_STATUS, (80, 4, 3, 5, 6, 1, 1), k=count),
            draw.choices(_HOSTS, (60, 30, 10), k=count),
            draw.choices(_AGENTS, (25, 10, 15, 20, 15, 15), k=count),
            draw.choices(_REFERERS, (30, 40, 20, 10), k=count),
            draw.choices(range(1_000_000), k=count),
            strict=True,
        )
        for method, path, status, host, agent, referer, number in drawn:
            micros += 37 + number % 4_099
            bits = draw.getrandbits(64)
            moment = datetime.fromtimestamp(micros // 1_000_000, UTC)
            yield (
                f'{{"ts":"{moment:%Y-%m-%dT%H:%M:%S}.{micros % 1_000_000:06d}Z","request_id":"{bits:016x}",'
                f'"ip":"{10 + number % 190}.{bits & 255}.{bits >> 8 & 255}.{bits >> 16 & 255}","host":"{host}",'
                f'"method":"{method}","path":"{path}?id={number % 50_000}","status":{status},'
                f'"bytes":{bits % 300_000},"duration_s":{(bits >> 24) % 3_000_000 / 1e6},'
                # A tenth of the requests has a user; of the others, half have null and half lack the field.
                f"{_user(number)}"
                f'"referer":{referer},"agent":"{agent}"}}\n'
            )


def _user(number: int) -> str:
    kind = number % 20
    return f'"user":"user-{number}",' if kind < 2 else '"user":null,' if kind < 11 else ""


def _write(folder: Path, rows: int, files: int, number: int, parts: int = 0) -> None:
    count = rows * (number + 1) // files - rows * number // files
    with (folder / f"access-{number:04d}.jsonl").open("w", encoding="ascii", buffering=1 << 20) as out:
        made = lines(count, number)
        if parts:
            made = (f'{{"part":"p{at % parts:04d}",{line[1:]}' for at, line in enumerate(made))
        out.writelines(made)


def main() -> None:
    """Make the generated log."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=ROWS)
    log = generated(parser.parse_args().rows)
    print(f"{log.folder}: {log.rows:,} rows, {log.bytes / 1e9:.2f} GB")


if __name__ == "__main__":
    main()
