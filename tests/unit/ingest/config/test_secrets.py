"""A job file with a mistake beside a secret, or in it: the message names the place and never the secret."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest

from ingest.config.load import load_config
from ingest.driver.build import open_source, open_timeline
from sinks.base import SinkContext
from timeline.errors import ConfigError
from timeline.stores.opening import open_store

SECRET = "hunter2-Xq9"

SOUND = """\
name: secrets
source: {type: files, path: logs/*.jsonl, format: json}
schema: {id: bigint}
targets: [{type: delta, path: lake}]
"""
KAFKA = SOUND.replace(
    "{type: files, path: logs/*.jsonl, format: json}",
    "{type: kafka, bootstrap_servers: 'b:9092', topics: [t], format: json, options: {%s}}",
)


@pytest.mark.parametrize(
    "text",
    [
        f"{SOUND}secrt: {SECRET}",
        f"{SOUND}storag: {{secret: {SECRET}}}",
        f"{SOUND}storage: {SECRET}",
        f"{SOUND}storage: [{SECRET}]",
        f"{SOUND}storage: {{secret:{SECRET}}}\nx: 1",
        f"{SOUND}storage: {{secret: !{SECRET} x}}",
        f"{SOUND}storage: {{secret: *{SECRET}}}",
        f"{SOUND}storage: {{secret: &a x, token: &a {SECRET}, key: *{SECRET}}}",
        f"{SOUND}storage:\n  secret: '${{{SECRET}'",
        f"{SOUND}storage:\n  secret: '${{{SECRET}}}'",
        f"{SOUND}storage:\n  secret:{SECRET}\n  key: k",
        f"{SOUND}storage:\n  secret: a: {SECRET}",
        f'{SOUND}storage:\n  secret: "{SECRET}\\q"',
        f"{SOUND}storage:\n  secret: x\n  secret: {SECRET}",
        f"{SOUND}spark: {{conf: {{some.option: [{SECRET}]}}}}",
        f"{SOUND}spark: {{conf: {SECRET}}}",
        f"{SOUND}spark: {{password: {SECRET}}}",
        SOUND.replace("path: lake", f"path: lake, secrt: {SECRET}"),
        SOUND.replace("path: lake", f"path: 's3://key:{SECRET}@bucket/lake'"),
        SOUND.replace("path: lake", f"path: 'gs://key:{SECRET}@bucket/lake'"),
        KAFKA % f"sasl.password: [{SECRET}]",
        KAFKA % f"sasl.password:{SECRET}",
        KAFKA % f"sasl.pasword: {{x: {SECRET}}}",
        KAFKA % f"group.id: {SECRET}",
    ],
)
def test_job_file_with_a_mistake_is_refused_without_the_secret(text: str, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as refused:
        load_config(file, {})
    assert SECRET not in shown_by_traceback(refused)


def test_objects_that_hold_secrets_do_not_show_them(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    client = f"client_kwargs: {{verify: x, aws_session_token: {SECRET}}}"
    storage = f"storage: {{key: {SECRET}, secret: {SECRET}, token: {SECRET}, {client}}}\n"
    spark = f"spark: {{conf: {{spark.some.option: {SECRET}}}}}\n"
    file.write_text(KAFKA.replace("path: lake", "path: 's3://b/lake'") % f"sasl.password: {SECRET}" + storage + spark)
    config = load_config(file, {})
    source = open_source(config)
    parts = [
        config,
        config.source,
        config.spark,
        source,
        source.reader(),
        open_store("s3://b/lake", config.storage),
        SinkContext("app", config.row_schema(config.arrow_schema or pytest.fail("no schema")), (), config.storage),
    ]
    for part in parts:
        assert SECRET not in f"{part!r} {part}", type(part).__name__
    with pytest.raises(ConfigError) as refused:
        open_timeline(config)
    assert "client_kwargs" in str(refused.value)
    assert SECRET not in shown_by_traceback(refused)


def shown_by_traceback(error: pytest.ExceptionInfo[BaseException]) -> str:
    """The text that a log shows of an error and its causes."""
    return "".join(traceback.format_exception(error.value))
