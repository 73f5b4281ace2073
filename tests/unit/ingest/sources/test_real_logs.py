"""The job files for real logs, their decoders compared with a plain reading of the files themselves."""

from __future__ import annotations

import datetime
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ingest.config.load import load_config
from ingest.driver.build import open_source
from tests.unit.ingest.sources.rows import outcome

ROOT = Path(__file__).parents[4]
UTC = datetime.UTC
Row = dict[str, Any]


def _read(name: str, logs: Path, split: int = 100_000) -> tuple[list[tuple[int, Row]], list[tuple[int, str, bytes]]]:
    config = load_config(ROOT / "conf" / name, {"LOGS": str(logs)})
    assert config.arrow_schema is not None
    source = open_source(config)
    decoder, reader = source.decoder(config.arrow_schema, lineage=True), source.reader()
    accepted, rejected = [], []
    for offsets in source.plan({}).ranges:
        for piece in source.split(offsets, split):
            for block in reader.read(piece):
                good, bad = outcome(decoder.decode(block))
                assert len(good) + len(bad) == block.rows
                accepted += good
                rejected += bad
    return accepted, rejected


def _plain(path: Path, parse: Callable[[str], Row]) -> list[tuple[int, Row]]:
    """Offset and row of every line, by Python alone."""
    rows, offset = [], 0
    for line in path.read_bytes().splitlines(keepends=True):
        text = line.decode().rstrip("\r\n")
        rows.append((offset, parse(text)))
        offset += len(line)
    return rows


def _dash(text: str) -> str | None:
    return None if text == "-" else text


def _access(text: str) -> Row:
    quoted = re.split(r'(?<!\\)"', text)
    if len(quoted) != 7:
        return {}
    before, request, numbers, referer, _, agent, _ = quoted
    host, ident, user, day, zone = before.split()
    method, path, *protocol = request.split(" ")
    status, size = numbers.split()
    return {
        "ts": datetime.datetime.strptime(f"{day} {zone}", "[%d/%b/%Y:%H:%M:%S %z]").astimezone(UTC),
        "host": host,
        "ident": _dash(ident),
        "user": _dash(user),
        "method": method,
        "path": path,
        "protocol": protocol[0] if protocol else "",
        "status": int(status),
        "bytes": None if size == "-" else int(size),
        "referer": _dash(referer),
        "agent": _dash(agent),
    }


def test_every_line_of_the_access_log_is_taken_but_the_broken_one(logs: Path) -> None:
    accepted, rejected = _read("access-log.yaml", logs)
    expected = _plain(logs / "apache_access.log", _access)
    assert accepted == [(offset, row) for offset, row in expected if row]
    assert [offset for offset, _, _ in rejected] == [offset for offset, row in expected if not row]
    assert (len(accepted), len(rejected)) == (9_999, 1)
    # The agent of the rejected line breaks off before the closing quote.
    assert rejected[0][2].endswith(b"http://www.google.com/bot.html")
    first = accepted[0][1]
    assert (first["host"], first["status"], first["bytes"]) == ("83.149.9.216", 200, 203023)
    assert first["ts"] == datetime.datetime(2015, 5, 17, 10, 5, 3, tzinfo=UTC)


def test_every_nested_status_record_is_taken_whole(logs: Path) -> None:
    accepted, rejected = _read("nginx-json.yaml", logs)
    assert (len(accepted), rejected) == (500, [])
    names = ("processing", "requests", "discarded", "received", "sent")

    def parse(text: str) -> Row:
        record = json.loads(text)
        return {
            name: record[name]
            for name in ("address", "nginx_version", "generation", "pid", "processes", "connections", "requests")
        } | {
            "timestamp": datetime.datetime.fromtimestamp(0, UTC) + datetime.timedelta(milliseconds=record["timestamp"]),
            "load_timestamp": datetime.datetime.fromtimestamp(0, UTC)
            + datetime.timedelta(milliseconds=record["load_timestamp"]),
            "server_zones": [
                (zone, {name: values[name] for name in names}) for zone, values in record["server_zones"].items()
            ],
            "upstreams": json.dumps(record["upstreams"], separators=(",", ":")),
            "caches": json.dumps(record["caches"], separators=(",", ":")),
        }

    assert accepted == _plain(logs / "nginx_plus.jsonl", parse)


def _hdfs(text: str) -> Row:
    day, time, thread, level, rest = text.split(" ", 4)
    component, message = rest.split(": ", 1)
    moment = datetime.datetime.strptime(day + time, "%y%m%d%H%M%S").replace(tzinfo=UTC)
    return {"ts": moment, "thread": int(thread), "level": level, "component": component, "message": message}


def _spark(text: str) -> Row:
    day, time, level, rest = text.split(" ", 3)
    component, message = rest.split(": ", 1)
    moment = datetime.datetime.strptime(f"{day} {time}", "%y/%m/%d %H:%M:%S")
    return {"ts": moment, "level": level, "component": component, "message": message}


def _openssh(text: str) -> Row:
    host, process, message = text[16:].split(" ", 2)
    local = datetime.datetime.strptime(f"2016 {text[:15]}", "%Y %b %d %H:%M:%S")
    logged_at = (local - datetime.timedelta(hours=8)).replace(tzinfo=UTC)
    return {"logged_at": logged_at, "host": host, "pid": int(process[5:-2]), "message": message}


def _openstack(text: str) -> Row:
    file, day, time, pid, level, component, rest = text.split(" ", 6)
    request, message = rest[1:].split("] ", 1)
    return {
        "ts": datetime.datetime.fromisoformat(f"{day} {time}").replace(tzinfo=UTC),
        "file": file,
        "pid": int(pid),
        "level": level,
        "component": component,
        "request": _dash(request),
        "message": message,
    }


@pytest.mark.parametrize(
    ("name", "data", "parse"),
    [
        ("hdfs.yaml", "loghub_HDFS_2k.log", _hdfs),
        ("spark-log.yaml", "loghub_Spark_2k.log", _spark),
        ("openstack.yaml", "loghub_OpenStack_2k.log", _openstack),
    ],
)
def test_every_line_of_a_text_log_is_taken(logs: Path, name: str, data: str, parse: Callable[[str], Row]) -> None:
    accepted, rejected = _read(name, logs)
    assert rejected == []
    assert accepted == _plain(logs / data, parse)
    assert len(accepted) == 2_000


def test_every_line_without_a_year_is_taken_with_the_year_of_its_file(logs: Path, tmp_path: Path) -> None:
    path = tmp_path / "loghub_OpenSSH_2k.log"
    path.write_bytes((logs / path.name).read_bytes())
    written_s = datetime.datetime(2017, 1, 2, tzinfo=UTC).timestamp()
    os.utime(path, (written_s, written_s))
    accepted, rejected = _read("openssh.yaml", tmp_path)
    assert rejected == []
    assert accepted == _plain(path, _openssh)
    assert len(accepted) == 2_000
