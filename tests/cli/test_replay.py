"""An epoch that a target has lost: `tideline recover` reports it, and `tideline run` writes it again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ingest.config.models import SparkConfig
from tests.cli.conftest import Call
from tests.cli.local_tideline import SparkFreeRunner
from tests.transaction_sink import LOSE, committed, installed, tell
from timeline.stores.base import ObjectStore
from timeline.stores.opening import open_store


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A job file with a target that can lose a prepared transaction."""

    monkeypatch.setattr("ingest.config.registry.installed_sinks", installed)
    monkeypatch.setattr("ingest.execution.spark.runner.SparkRunner", SparkFreeRunner)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.jsonl").write_text('{"number": 1}\n{"number": 2}\n{bad\n')
    file = tmp_path / "job.yaml"
    file.write_text(
        json.dumps(
            {
                "name": "lost",
                "source": {"type": "files", "path": f"{tmp_path}/logs", "format": "json", "close_after": "0s"},
                "schema": {"number": "bigint"},
                "targets": [
                    {"type": "delta", "path": f"{tmp_path}/lake"},
                    {"type": "transactions", "name": "keyed", "place": f"{tmp_path}/keyed"},
                ],
                "spark": SparkConfig().model_dump(mode="json"),
            }
        )
    )
    return file


def keyed(job: Path) -> ObjectStore:
    return open_store(str(job.parent / "keyed"))


def lose(call: Call, job: Path) -> None:
    """Leave an epoch decided and pending: the target loses it more often than one run writes it again."""
    tell(keyed(job), LOSE, 4)
    ended = call("run", job)
    assert ended.code == 9, ended.err
    assert "keyed: epoch 0" in ended.err


def test_recover_names_what_has_to_be_written_again_and_run_does_it(call: Call, job: Path) -> None:
    lose(call, job)
    for _ in range(2):
        ended = call("recover", job)
        assert ended.code == 9
        assert "decided and pending: keyed: epoch 0" in ended.out
        assert "tideline run CONF does it, from the epoch's own offsets" in ended.out
    said = call("recover", job, "--json").json
    assert said["settled"] == []
    (left,) = said["replays"]
    assert left["step"] == "replay" and "was rolled back" in left["reason"]
    assert committed(keyed(job)) == []

    ended = call("run", job)
    assert ended.code == 0, ended.err
    assert committed(keyed(job)) == [1, 2]
    assert call("recover", job).out.endswith("nothing is pending\n")
    (row,) = call("show", job, "--json").json
    assert (row["state"], row["rows"], row["rejected"]) == ("completed", 2, 1)
    assert row["targets"]["keyed"] == {"written": 2, "dropped": 0, "rejected": 0}


def test_dry_run_sees_it_and_touches_nothing(call: Call, job: Path) -> None:
    lose(call, job)
    before = {path: path.stat().st_mtime_ns for path in job.parent.rglob("*")}
    ended = call("recover", job, "--dry-run")
    assert ended.code == 9
    assert "→ replay: decided: commit" in ended.out and "to be written again: keyed: transaction txn/" in ended.out
    assert "would: leave it pending; tideline run CONF writes it to that target again" in ended.out
    (found,) = call("recover", job, "--dry-run", "--json").json["found"]
    assert found["step"] == "replay"
    assert {path: path.stat().st_mtime_ns for path in job.parent.rglob("*")} == before
