"""The reference pages name every key, option, field and exit code."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest
import yaml
from pydantic import BaseModel
from typer.main import get_command

from ingest.cli.app import app
from ingest.cli.exit_codes import EXIT_CODES
from ingest.config.load import load_config
from ingest.config.models import EpochConfig, JobConfig, SparkConfig, TimelineConfig, WriterConfig
from ingest.reports.instants import InstantView
from ingest.sources.decode.options import CsvOptions
from ingest.sources.files.options import FilesOptions
from ingest.sources.kafka.options import KafkaOptions
from sinks.delta.sink import DeltaOptions
from sinks.tikv.options import DedupOptions, TikvOptions, TlsOptions
from tests.job import ROOT, Job

JOB_FILE = (ROOT / "docs" / "job-file.md").read_text()
CLI = (ROOT / "docs" / "cli.md").read_text()

FILLED_IN = ("type", "quarantine", "timeline")
"""Keys that the model requires and the file does not."""

BLOCKS = ("csv", "dedup", "tls")
"""Blocks with one row for each of their keys."""

SAID_ABOVE = ("pattern", "timestamp_format", "timezone", "nulls")
"""Keys of every source, documented once."""


def rows(text: str, heading: str) -> dict[str, list[str]]:
    """Table rows of a section: first cell, without backticks, to the other cells."""
    section = re.split(rf"^## {re.escape(heading)}$", text, flags=re.M)[1].split("\n## ")[0]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"]
    return {name.strip("`"): rest for name, *rest in cells}


@pytest.mark.parametrize(
    ("heading", "prefix", "model"),
    [
        ("Top level", "", JobConfig),
        ("source", "", FilesOptions),
        ("source", "csv.", CsvOptions),
        ("kafka", "", KafkaOptions),
        ("targets", "", DeltaOptions),
        ("tikv", "", TikvOptions),
        ("tikv", "dedup.", DedupOptions),
        ("tikv", "tls.", TlsOptions),
        ("timeline", "", TimelineConfig),
        ("epoch and writer", "epoch.", EpochConfig),
        ("epoch and writer", "writer.", WriterConfig),
        ("spark", "", SparkConfig),
    ],
)
def test_every_key_of_a_job_file_is_documented(heading: str, prefix: str, model: type[BaseModel]) -> None:
    documented = rows(JOB_FILE, heading)
    for name, field in model.model_fields.items():
        key = f"{prefix}{field.alias or name}"
        if key in BLOCKS or (model is KafkaOptions and key in SAID_ABOVE):
            continue
        assert key in documented, key
        assert (documented[key][1] == "required") == field.is_required() or key in FILLED_IN


def test_every_documented_key_exists() -> None:
    known = {*JobConfig.model_fields, *FilesOptions.model_fields, *DeltaOptions.model_fields, "schema", "key", "---"}
    known |= {f"csv.{name}" for name in CsvOptions.model_fields} | {"epoch.interval", "writer.lease_ttl"}
    known |= {*SparkConfig.model_fields}
    known |= {*KafkaOptions.model_fields, "pattern`, `timestamp_format`, `timezone`, `nulls"}
    known |= {*TikvOptions.model_fields, *(f"dedup.{name}" for name in DedupOptions.model_fields)}
    known |= {f"tls.{name}" for name in TlsOptions.model_fields}
    for heading in ("Top level", "source", "kafka", "targets", "tikv", "timeline", "epoch and writer", "spark"):
        assert rows(JOB_FILE, heading).keys() <= known


def test_examples_of_the_job_file_page_are_valid(job: Job) -> None:
    whole, *parts = (yaml.safe_load(example) for example in re.findall(r"```yaml\n(.*?)```", JOB_FILE, re.S))
    environment = {"LOGS": "logs", "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
    for part in parts:
        columns = whole["schema"] | {"region": "string"}
        if "source" in part:
            columns = {"ts": "timestamp", "host": "string", "request": "string", "status": "int", "bytes": "bigint"}
        job.file.write_text(yaml.safe_dump(whole | {"schema": columns | part.get("schema", {})} | part))
        load_config(job.file, environment)


def test_every_command_option_field_and_exit_code_is_documented() -> None:
    for name, command in getattr(get_command(app), "commands").items():  # noqa: B009 - typer's type hides it
        section = CLI.split(f"## tideline {name}")[1].split("\n## ")[0]
        for parameter in command.params:
            for option in (*parameter.opts, *parameter.secondary_opts):
                assert option in section or option == "conf", f"{name} {option}"
    assert {field.name for field in fields(InstantView)} <= set(re.findall(r"`(\w+)`", CLI))
    documented = [(code, *cells) for code, cells in rows(CLI, "Exit codes").items()][2:]
    assert documented == [(str(row.code), row.meaning, row.advice) for row in EXIT_CODES]
