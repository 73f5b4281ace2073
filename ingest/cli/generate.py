"""A deterministic, realistic web log in JSON lines, with about one malformed line in a hundred."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

_PATHS = ("/", "/login", "/search?q=tide", "/static/app.js", "/api/v1/items", "/api/v1/items/42", "/img/logo.svg")
_AGENTS = ("Mozilla/5.0 (X11; Linux x86_64)", "curl/8.5.0", "Googlebot/2.1", "Mozilla/5.0 (iPhone)")
_METHODS = ("GET", "GET", "GET", "GET", "POST", "HEAD")
_STATUS = (200, 200, 200, 200, 200, 204, 301, 304, 404, 500)

DEMO_COLUMNS = {
    "id": "bigint",
    "ts": "timestamp",
    "host": "string",
    "method": "string",
    "path": "string",
    "status": "int",
    "bytes": "bigint",
    "latency_ms": "double",
    "agent": "string",
    "message": "string",
}
"""The columns of a generated line, as a job file declares them."""


def log_lines(rows: int, seed: int = 7) -> Iterator[bytes]:
    """Lines without their line ends; line n, unless malformed, has ``id`` n. The same arguments give the same lines."""
    draw = random.Random(seed)
    moment = datetime(2026, 3, 1, tzinfo=UTC)
    for number in range(rows):
        moment += timedelta(microseconds=draw.randrange(1_000, 2_000_000))
        line = json.dumps(
            {
                "id": number,
                "ts": moment.isoformat(timespec="microseconds").replace("+00:00", "Z"),
                "host": f"10.0.{draw.randrange(4)}.{draw.randrange(256)}",
                "method": draw.choice(_METHODS),
                "path": draw.choice(_PATHS),
                "status": draw.choice(_STATUS),
                "bytes": draw.randrange(200_000),
                "latency_ms": round(draw.expovariate(1 / 40), 3),
                "agent": draw.choice(_AGENTS),
                "message": "request served" if draw.random() < 0.97 else "upstream timed out: é, ü, 潮",
            },
            ensure_ascii=False,
        ).encode()
        yield _malformed(line, draw) if draw.random() < 0.01 else line


def write_logs(folder: Path, rows: int, files: int, seed: int = 7) -> list[Path]:
    """Write a generated log into consecutive files ``access-<n>.jsonl`` of about equal numbers of lines.

    Args:
        folder: parent of the files; created where it is missing.
        rows: lines in all.
        files: number of files.
        seed: seed of the generator; the same arguments give the same files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lines = log_lines(rows, seed)
    paths: list[Path] = []
    for number in range(files):
        path = folder / f"access-{number:03d}.jsonl"
        count = rows * (number + 1) // files - rows * number // files
        with path.open("wb") as out:
            for _ in range(count):
                out.write(next(lines) + b"\n")
        paths.append(path)
    return paths


def _malformed(line: bytes, draw: random.Random) -> bytes:
    match draw.randrange(4):
        case 0:
            return line[:-1]  # a missing brace
        case 1:
            return line[: draw.randrange(10, len(line) - 10)]  # cut off in the middle
        case 2:
            return line.replace(b'"status": ', b'"status": "n/a", "was": ')  # a value of another type
        case _:
            return line.replace(b'"method": "', b'"method": "\xff\xfe')  # not UTF-8
