"""`tideline fsck` and `replay-quarantine` with a TiKV target: keys and locks compared with the timeline."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from sinks.audit import Expected, InstantState, Problem
from sinks.tikv.transaction import Transaction, prewrite
from tests.job import Job
from tests.real.test_tikv_transactions import FEW, begun, encoded
from tests.real.tikv_cluster import TikvCluster
from tests.real.tikv_epochs import Place, committed, prepared, ref, rows, write_bucket

pytestmark = pytest.mark.real


@pytest.fixture
def place(tikv: TikvCluster) -> Place:
    return Place.in_(tikv)


def test_locks_of_a_late_task_are_orphans_once_its_epoch_is_rolled_back_and_go_on_demand(place: Place) -> None:
    committed(place.sink(), ref(0), rows(FEW, "before"))
    sink, epoch = place.sink(lock_ttl=1), ref(1)
    copy = begun(sink, epoch)
    sink.abort(epoch, None)
    sink.release(epoch, None)
    write_bucket(copy, rows(FEW, "late"))
    (finding,) = place.sink().auditor().audit(Expected((), {epoch.instant: InstantState.ROLLED_BACK})).findings
    assert finding.problem is Problem.ORPHAN and finding.is_fixable
    assert f"{len(FEW)} locks" in finding.detail
    place.sink().auditor().delete([finding])
    assert place.locks() == []
    assert not place.sink().auditor().audit(Expected((), {epoch.instant: InstantState.ROLLED_BACK})).findings


def test_locks_of_an_open_epoch_are_nobodys_business(place: Place) -> None:
    sink, epoch = place.sink(), ref(0)
    part = prepared(sink, epoch, rows(FEW, "open"))
    assert place.locks()
    assert not place.sink().auditor().audit(Expected((), {epoch.instant: InstantState.PENDING})).findings
    sink.abort(epoch, part)


def test_locks_that_are_not_this_jobs_are_named_and_left_alone(place: Place) -> None:
    client = place.client
    theirs = encoded(place, rows(range(10), "theirs"))
    prewrite(client, Transaction(client.pd.timestamp(), theirs.first_key, 60_000), theirs)
    (finding,) = place.sink().auditor().audit(Expected((), {})).findings
    assert finding.problem is Problem.UNKNOWN and not finding.is_fixable
    place.sink().auditor().delete([finding])
    assert len(place.locks()) == 10


def test_completed_epoch_whose_record_is_gone_is_missed(place: Place) -> None:
    sink, epoch = place.sink(), ref(0)
    part = prepared(sink, epoch, rows(FEW, "never committed"))
    sink.abort(epoch, part)
    findings = place.sink().auditor().audit(Expected((part,), {epoch.instant: InstantState.COMMITTED})).findings
    assert [finding.problem for finding in findings] == [Problem.NOT_APPLIED]


def test_replay_into_tikv_and_delta_leaves_out_what_a_target_refused(tikv: TikvCluster, tmp_path: Path) -> None:
    job = Job(tmp_path)
    keyed = {
        "type": "tikv",
        "name": "keyed",
        "pd": list(tikv.pd),
        "prefix": "tmended_",
        "key": ["id"],
        "mode": "insert",
        "on_existing": "quarantine",
    }
    targets = [{"type": "delta", "path": f"{tmp_path}/lake"}, keyed]
    schema = {"id": "bigint", "at": "timestamp"}

    def write(timestamp_format: str) -> None:
        job.write(source=job.source(timestamp_format=timestamp_format), schema=schema, targets=targets)

    write("%Y-%m-%d")
    with (tmp_path / "logs" / "a.jsonl").open("w") as out:
        out.writelines(f'{{"id": {day}, "at": "2026-03-0{day}"}}\n' for day in (1, 2))
        out.writelines(f'{{"id": {day}, "at": "0{day}.03.2026"}}\n' for day in (3, 4))
    assert job.tideline("run").code == 0
    with (tmp_path / "logs" / "b.jsonl").open("w") as out:
        out.write('{"id": 1, "at": "2026-03-09"}\n')
    assert job.tideline("run").code == 0, "its key exists: the quarantine has it"
    write("%d.%m.%Y")
    replayed = job.tideline("replay-quarantine")
    assert replayed.out == "cli: 2 records replayed: 2 accepted, none rejected again\n", replayed.err
    assert job.ids() == Counter({1: 2, 2: 1, 3: 1, 4: 1})
    read = [json.loads(line)["id"] for line in job.tideline("read", "--json").out.splitlines()]
    assert read == [1, 2, 3, 4]
    checked = job.tideline("fsck")
    assert checked.code == 0, checked.out
    assert "0 locks" in checked.out
