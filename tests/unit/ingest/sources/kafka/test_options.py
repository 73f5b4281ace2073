from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

from ingest.config.load import load_config
from ingest.driver.build import open_source
from ingest.sources.kafka.options import OWN_OPTIONS, Edge, FromOffsets, FromTime, KafkaOptions, Tombstones
from timeline.errors import ConfigError

SECRET = "hunter2-hunter2"


def options_of(**changes: Any) -> KafkaOptions:
    return KafkaOptions.model_validate({"bootstrap_servers": "b:1", "format": "json", "topics": ["a"]} | changes)


def job_file(folder: Path, source: dict[str, Any], **blocks: Any) -> Path:
    path = folder / "job.yaml"
    settings = {
        "name": "orders",
        "source": {"type": "kafka", "bootstrap_servers": "127.0.0.1:1", "format": "json", "topics": ["orders"]}
        | source,
        "schema": {"id": "bigint"},
        "targets": [{"type": "delta", "path": str(folder / "lake")}],
    }
    path.write_text(yaml.safe_dump({k: v for k, v in (settings | blocks).items() if v is not None}))
    return path


def loaded(folder: Path, **source: Any) -> KafkaOptions:
    options = load_config(job_file(folder, source), {}).source
    assert isinstance(options, KafkaOptions)
    return options


def test_everything_is_read_as_it_is_written(tmp_path: Path) -> None:
    options = loaded(
        tmp_path,
        max_bytes_per_epoch="1MiB",
        broker_timeout="500ms",
        tombstones="skip",
        options={"security.protocol": "ssl", "enable.ssl.certificate.verification": False, "socket.timeout.ms": 9000},
        columns={"key": "k", "offset": "at"},
    )
    assert (options.max_bytes_per_epoch, options.broker_timeout) == (1 << 20, 0.5)
    assert options.tombstones is Tombstones.SKIP
    assert options.options["enable.ssl.certificate.verification"] == "false"
    assert options.options["socket.timeout.ms"] == "9000"
    assert options.added_columns == pa.schema([("k", pa.string()), ("at", pa.int64())])


@pytest.mark.parametrize(
    ("written", "start"),
    [
        ("earliest", Edge.EARLIEST),
        ("latest", Edge.LATEST),
        ({"timestamp": "1970-01-01T00:00:02.5Z"}, FromTime(2500)),
        ({"timestamp": "1970-01-01 00:00:02"}, FromTime(2000)),
        ({"offsets": {"orders": {0: 5, 1: 0}}}, FromOffsets({"orders": {0: 5, 1: 0}})),
    ],
)
def test_start_is_an_edge_a_time_or_offsets(tmp_path: Path, written: object, start: object) -> None:
    assert loaded(tmp_path, start=written).start == start


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"start": "newest"}, r"source.start: earliest, latest, \{timestamp"),
        ({"start": {"timestamp": "yesterday"}}, "source.start: timestamp: ISO 8601 is allowed"),
        ({"start": {"timestamp": "2026-01-01", "offsets": {}}}, "source.start: earliest, latest"),
        ({"start": {"offsets": {"orders": {"one": 5}}}}, "source.start: offsets: partition numbers"),
        ({"start": {"offsets": {"orders": {0: -1}}}}, "source.start: offsets: partition numbers"),
        ({"topics": []}, "one of the two"),
        ({"topic_pattern": "o.*"}, "one of the two"),
        ({"topics": None, "topic_pattern": "("}, "source.topic_pattern: not a regular expression"),
        ({"topics": ["a/b"]}, "source.topics: 'a/b': letters"),
        ({"topics": ["a", "a"]}, "named twice"),
        ({"columns": {"header": "h"}}, "source.columns.header: unknown key; did you mean 'headers'?"),
        ({"columns": {"key": "x", "offset": "X"}}, "letters' case aside"),
        ({"columns": {"key": "ID"}}, "schema.id: 'ID' is taken: the source adds it"),
        ({"format": "csv", "csv": {"header": True}}, "source.csv.header: a message has no header"),
        ({"format": "parquet"}, "allowed are json, csv, text, raw"),
        ({"format": "raw"}, "schema: format raw has one column, of type binary or string"),
        ({"tombstones": "keep"}, "source.tombstones"),
        ({"max_records_per_epoch": 0}, "source.max_records_per_epoch"),
    ],
)
def test_what_makes_no_sense_is_refused_by_its_key(tmp_path: Path, source: dict[str, Any], message: str) -> None:
    source = {name: value for name, value in source.items() if value is not None or name != "topics"} | (
        {"topics": []} if source.get("topics", ()) is None else {}
    )
    with pytest.raises(ConfigError, match=message):
        load_config(job_file(tmp_path, source), {})


def test_csv_in_messages_has_no_header_and_needs_a_schema(tmp_path: Path) -> None:
    assert not loaded(tmp_path, format="csv", csv={"delimiter": ";"}).has_header
    with pytest.raises(ConfigError, match="csv without a header does not name its columns"):
        load_config(job_file(tmp_path, {"format": "csv"}, schema=None), {})


@pytest.mark.parametrize("name", OWN_OPTIONS)
def test_options_that_guarantees_hang_on_cannot_be_set(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=f"source.options: {name} cannot be set") as refused:
        load_config(job_file(tmp_path, {"options": {name: SECRET}}), {})
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("sasl.pasword", "source.options.sasl.pasword: librdkafka has no such option"),
        ("fetch.min.bytes", "source.options.fetch.min.bytes: librdkafka does not take the value of it"),
        ("throttle_cb", "source.options: librdkafka refuses them"),
    ],
)
def test_what_librdkafka_refuses_is_named_without_a_value(tmp_path: Path, option: str, message: str) -> None:
    config = load_config(job_file(tmp_path, {"options": {option: SECRET}}), {})
    with pytest.raises(ConfigError, match=message) as refused:
        open_source(config).plan({})
    assert SECRET not in str(refused.value)
    assert refused.value.__cause__ is None


def test_secrets_are_in_no_repr_and_in_no_message_about_the_file(tmp_path: Path) -> None:
    options = {"sasl.password": SECRET}
    config = load_config(job_file(tmp_path, {"options": options}), {})
    assert SECRET not in repr(config) + str(config) + config.source.place + repr(open_source(config).reader())
    with pytest.raises(ConfigError) as refused:
        load_config(job_file(tmp_path, {"options": {"sasl.pasword": [SECRET], "group.id": SECRET}}), {})
    assert "source.options" in str(refused.value)
    assert SECRET not in str(refused.value)


def test_topics_match_a_pattern_whole_and_never_kafkas_own() -> None:
    options = options_of(topics=(), topic_pattern="web-.*|__.*")
    assert [name for name in ("web-1", "my-web-1", "web", "__consumer_offsets") if options.wants(name)] == ["web-1"]


def test_place_names_brokers_and_topics_alone() -> None:
    options = options_of(topics=("a", "b"), options={"sasl.password": SECRET})
    assert options.place == "topics a, b on b:1"
