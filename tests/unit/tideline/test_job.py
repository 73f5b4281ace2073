"""A job built in Python equals the job of its YAML, and its mistakes give the same error messages."""

from __future__ import annotations

import enum
import re
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pyarrow as pa
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import tideline
from ingest.config.load import load_config
from ingest.config.models import JobConfig
from ingest.sources.files.options import FilesOptions
from ingest.sources.kafka.options import KafkaOptions
from sinks.delta.sink import DeltaOptions
from sinks.tikv.options import TikvOptions
from tideline.keys import DeltaKeys, FilesKeys, KafkaKeys, TikvKeys
from timeline.errors import ConfigError


def job(**changes: Any) -> tideline.Job:
    given: dict[str, Any] = {
        "name": "web",
        "source": tideline.files("logs/*.jsonl", format="json", close_after="0s", nulls=["", "-"]),
        "targets": [tideline.delta("lake/web", target_file_bytes="64MB")],
        "schema": {"id": "bigint", "at": pa.timestamp("us", "UTC"), "on": "struct<a:int,b:string>"},
        "partition_by": ["date(at)"],
        "storage": {"key": "${KEY:-k}", "client_kwargs": {"endpoint_url": "http://localhost:1"}},
        "spark": {"master": "local[2]", "conf": {"spark.ui.enabled": False, "spark.port.maxRetries": 3}},
        "epoch": {"interval": 0.5},
        "lineage": True,
    }
    return tideline.Job(**given | changes)


def by_file(built: tideline.Job, folder: Path) -> JobConfig:
    path = folder / "job.yaml"
    path.write_text(built.to_yaml())
    return load_config(path)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"schema": None, "partition_by": (), "lineage": False, "storage": {}, "spark": {}, "epoch": {}},
        {"timeline": "lake/timeline", "quarantine": tideline.delta("lake/bad", name="bad")},
        {"transform": "SELECT id, upper(on.b) AS b FROM source -- of 'all'\n", "partition_by": ()},
        {"source": tideline.kafka("host:9092", format="json", topics=["a"], options={"sasl.password": "${P:-x}"})},
        {"targets": [tideline.target("delta", path=Path("lake/other"))]},
        {"on_commit": {"command": ["true", "a b"], "timeout": "5s"}, "metrics": {"port": 0}},
        {
            "source": tideline.files("x", format="text", pattern=r"(?P<id>\d+): \"(?P<on>.*)\" # é"),
            "schema": {"id": "bigint", "on": "string"},
            "partition_by": (),
        },
    ],
)
def test_code_and_the_file_that_it_writes_are_one_job(changes: dict[str, Any], tmp_path: Path) -> None:
    built = job(**changes)
    assert built.config() == by_file(built, tmp_path)


@given(st.text(st.characters(codec="utf-8"), min_size=1, max_size=30))
def test_a_text_stays_a_text(text: str) -> None:
    built = job(spark={"conf": {"spark.some": text}})
    assert yaml.safe_load(built.to_yaml())["spark"]["conf"]["spark.some"] == text
    if "${" not in text:
        assert built.config({}).spark.conf["spark.some"] == text


@pytest.mark.parametrize(
    "text", ["yes", "No", "null", "~", "1e3", "0x10", "1_000", ".5", "2026-03-01", "12:30:45", "=", ""]
)
def test_a_text_that_yaml_may_take_for_another_value_stays_a_text(text: str) -> None:
    assert job(spark={"conf": {"spark.some": text}}).config({}).spark.conf["spark.some"] == text


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "no good"},
        {"targets": []},
        {"source": tideline.files("x", format="jsn", on_truncat="stop")},  # type: ignore[call-arg, arg-type]
        {"targets": [tideline.target("delta", path="a", pth="b"), tideline.target("delat", path="c")]},
        {"schema": {"id": "bigint", "at": "tmestamp"}},
        {"partition_by": ["date(nothing)"]},
        {"epoch": {"interval": "soon"}, "writer": {"lease_ttl": 0.1}},
        {"storage": {"secret": "${NOT_SET_ANYWHERE}"}},
    ],
)
def test_mistakes_are_told_in_the_words_of_a_job_file(changes: dict[str, Any], tmp_path: Path) -> None:
    built = job(**changes)
    with pytest.raises(ConfigError) as of_code:
        built.config()
    with pytest.raises(ConfigError) as of_file:
        by_file(built, tmp_path)
    without_lines = re.sub(r"\n  line \d+: ", "\n  ", str(of_file.value)).replace(
        f"{tmp_path}/job.yaml", f"job {built.name}"
    )
    assert sorted(str(of_code.value).splitlines()) == sorted(without_lines.splitlines())


def test_a_job_shows_no_secret() -> None:
    shown = repr(
        job(
            storage={"secret": "s3cr3t"},
            spark={"conf": {"spark.x.password": "s3cr3t"}},
            source=tideline.kafka("a:1", format="json", topics=["t"], options={"sasl.password": "s3cr3t"}),
            on_commit={"url": "https://x/?token=s3cr3t"},
        )
    )
    assert "s3cr3t" not in shown


@pytest.mark.parametrize(
    ("keys", "model", "given"),
    [
        (FilesKeys, FilesOptions, {"path"}),
        (KafkaKeys, KafkaOptions, {"bootstrap_servers"}),
        (DeltaKeys, DeltaOptions, {"path"}),
        (TikvKeys, TikvOptions, {"pd"}),
    ],
)
def test_every_key_of_a_block_can_be_given(keys: Any, model: Any, given: set[str]) -> None:
    assert set(get_type_hints(keys)) | given | {"type"} == set(model.model_fields)


@pytest.mark.parametrize(
    ("keys", "model"), [(FilesKeys, FilesOptions), (DeltaKeys, DeltaOptions), (TikvKeys, TikvOptions)]
)
def test_words_that_are_allowed_are_those_of_the_options(keys: Any, model: Any) -> None:
    for name, hint in get_type_hints(keys).items():
        words = getattr(hint, "__args__", ()) if "Literal" in str(hint) else ()
        kind = model.model_fields[name].annotation
        if words and isinstance(kind, type) and issubclass(kind, enum.Enum) and name != "format":
            assert set(words) == {member.value for member in kind}
    formats = getattr(model, "formats", None)
    if formats is not None:
        assert set(get_type_hints(keys)["format"].__args__) == {kind.value for kind in formats}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schema": {"id": pa.duration("us")}}, "job web: schema: duration.us.: Spark SQL has no such type"),
        ({"epoch": {"interval": object()}}, "job web: epoch: a value of type object is not allowed"),
    ],
)
def test_values_that_no_job_file_can_hold_are_errors_of_the_job(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        job(**changes).config()


def test_arrow_schemas_numpy_numbers_and_blocks_are_taken() -> None:
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    assert yaml.safe_load(job(schema=schema).to_yaml())["schema"] == {"id": "bigint", "at": "timestamp"}
    assert yaml.safe_load(job(timeline={"path": "state"}).to_yaml())["timeline"] == {"path": "state"}
    assert yaml.safe_load(job(writer={"lease_ttl": np.int64(30)}).to_yaml())["writer"] == {"lease_ttl": 30}


def test_something_that_is_no_job_is_refused() -> None:
    with pytest.raises(ConfigError, match="the path of a job file, found dict"):
        tideline.run({"name": "web"})  # type: ignore[arg-type]
