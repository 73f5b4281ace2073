"""Unknown keys are reported with their right place and hide no problem; a reference may hold a value of any kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingest.config.load import JobConfig, load_config
from timeline.errors import ConfigError

FILES = """\
name: small
source: {type: files, path: logs, format: text, pattern: "(?P<at>.*)", timestamp_format: "%b %d %H:%M:%S", year: file}
targets: [{type: delta, path: lake/small}]
"""
KAFKA = """\
name: small
source: {type: kafka, bootstrap_servers: "b:1", topics: [t], format: json}
targets:
  - {type: delta, path: lake/small}
  - {type: tikv, pd: ["127.0.0.1:2379"], prefix: p_, key: [id]}
schema: {id: bigint}
"""


def load(folder: Path, text: str, **environment: str) -> JobConfig:
    file = folder / "job.yaml"
    file.write_text(text)
    return load_config(file, environment)


def problems(folder: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(folder, text)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (FILES + "timezone: UTC\n", "timezone: unknown key here; its place is source.timezone; here allowed are name"),
        (FILES + "year: 2024\n", "year: unknown key here; its place is source.year"),
        (FILES + "interval: 1s\n", "interval: unknown key here; its place is epoch.interval"),
        (FILES + "compression: zstd\n", "its place is source.compression or targets[0].compression"),
        (
            FILES.replace("path: logs,", "path: logs, header: true,"),
            "source.header: unknown key here; its place is source.csv.header",
        ),
        (
            FILES.replace("path: logs,", "path: logs, partition_by: [a],"),
            "its place is partition_by; here allowed are type",
        ),
        (
            KAFKA.replace("key: [id]", "key: [id], tls: {ka: x}"),
            "targets[1].tls.ka: unknown key; allowed are ca, cert, key",
        ),
        (KAFKA.replace("format: json", "format: json, columns: {header: h}"), "did you mean 'headers'?"),
        (FILES + "nowhere: 1\n", "nowhere: unknown key; allowed are name"),
    ],
)
def test_an_unknown_key_is_told_with_the_place_where_it_belongs(tmp_path: Path, text: str, words: str) -> None:
    assert words in problems(tmp_path, text)


def test_an_unknown_key_hides_no_other_problem_of_its_block_or_between_blocks(tmp_path: Path) -> None:
    found = problems(
        tmp_path,
        """\
name: small
source: {type: files, path: logs, format: text, heder: 1, csv: {hedder: 1}}
targets:
  - {type: tikv, pd: ["h:1"], prefix: p, key: [a, a], tyls: 1, tls: {ca: a, cat: b}}
on_commit:
  - {url: "ftp://x", foo: 1, timeout: -1}
  - {command: [], bar: 1}
""",
    )
    for words in (
        "source.heder: unknown key",
        "source.csv.hedder: unknown key; did you mean 'header'?",
        "source: format text needs pattern",
        "targets[0].tyls: unknown key",
        "targets[0].tls.cat: unknown key",
        "key names a column twice",
        "[0]foo: unknown key",
        "[0]timeout: ",
        "[1]bar: unknown key",
        "[1]command: ",
    ):
        assert words in found


@pytest.mark.parametrize(
    ("text", "block", "key", "value"),
    [
        (FILES.replace("year: file", 'year: "${V}"'), "source", "year", 2024),
        (FILES.replace("year: file", 'year: file, max_files_per_epoch: "${V}"'), "source", "max_files_per_epoch", 7),
        (FILES.replace("year: file", 'year: file, max_bytes_per_epoch: "${V}"'), "source", "max_bytes_per_epoch", 7),
        (FILES.replace("year: file", 'year: file, close_after: "${V}"'), "source", "close_after", 2.5),
        (FILES + "epoch: {interval: '${V}'}\n", "epoch", "interval", 3),
        (FILES + "writer: {lease_ttl: '${V}'}\n", "writer", "lease_ttl", 3),
        (FILES + "metrics: {port: '${V}'}\n", "metrics", "port", 9000),
        (FILES + "lineage: ${V}\n", "", "lineage", True),
        (FILES + "spark: {executor_wait: '${V}'}\n", "spark", "executor_wait", 5),
        (FILES + "on_commit: {url: 'http://h', retries: '${V}'}\n", "on_commit", "retries", 4),
        (FILES.replace("lake/small", "lake/small, target_file_bytes: '${V}'"), "targets", "target_file_bytes", 1000),
        (
            KAFKA.replace("format: json", 'format: json, max_records_per_epoch: "${V}"'),
            "source",
            "max_records_per_epoch",
            9,
        ),
        (KAFKA.replace("format: json", "format: csv, csv: {header: '${V}'}"), "source", "csv.header", False),
    ],
)
def test_a_reference_may_hold_a_value_of_any_kind(
    tmp_path: Path, text: str, block: str, key: str, value: object
) -> None:
    found: object = load(tmp_path, text, V=str(value).lower())
    for name in [block, *key.split(".")]:
        if name:
            found = getattr(found, name)
        if isinstance(found, tuple):
            found = found[0]
    assert found == value
    assert not isinstance(found, str)


def test_offsets_of_topics_may_come_by_reference(tmp_path: Path) -> None:
    start = "start: {offsets: {t: {0: '${OFFSET}'}}}"
    config = load(tmp_path, KAFKA.replace("format: json", f"format: json, {start}"), OFFSET="42")
    assert config == load(tmp_path, KAFKA.replace("format: json", "format: json, start: {offsets: {t: {0: 42}}}"))


def test_a_storage_option_by_reference_is_text_but_for_truth(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        FILES + "storage: {anon: '${ANON:-false}', key: '${KEY}', client_kwargs: {use_ssl: '${TLS}'}}\n",
        KEY="12345",
        TLS="true",
    )
    assert config.storage == {"anon": False, "key": "12345", "client_kwargs": {"use_ssl": True}}
