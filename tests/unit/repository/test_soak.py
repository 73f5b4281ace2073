"""The checks of the soak test find lost, repeated and wrong records, unreferenced files and failed commands."""

from __future__ import annotations

import json
import signal
from collections.abc import Sequence

import pytest

from tests.soak.commands import ORDERLY_CODES, complaint_about
from tests.soak.verdict import Place, Verdict, compare, decoded, is_left_over

RECORDS = {("events/0", 0): (1, "a"), ("events/0", 1): (2, "b"), ("events/1", 0): (3, "c")}


def verdict_on(found: Sequence[tuple[Place, object]]) -> Verdict:
    verdict = Verdict(len(RECORDS))
    compare("events", RECORDS, found, verdict)
    return verdict


def test_table_that_holds_each_record_once_is_without_problems() -> None:
    assert verdict_on(list(RECORDS.items())).problems == []


def test_each_lost_and_each_repeated_record_is_counted() -> None:
    first, second, _ = RECORDS.items()
    verdict = verdict_on([first, second, second, second])
    assert (verdict.lost, verdict.duplicate, verdict.wrong) == (1, 2, [])
    assert verdict.problems == ["1 records lost", "2 records too many"]


@pytest.mark.parametrize("wrong", [(("events/1", 0), (3, "other")), (("events/2", 0), (4, "aborted"))])
def test_row_that_is_not_the_record_at_its_place_is_wrong(wrong: tuple[Place, object]) -> None:
    verdict = verdict_on([*RECORDS.items(), wrong])
    assert len(verdict.wrong) == 1 and str(wrong[0]) in verdict.wrong[0]


def test_malformed_record_belongs_into_the_quarantine() -> None:
    assert decoded(b'{"id": 1, "text": "a"}') == (1, "a")
    assert decoded(b'{"id": 1, "text": "a') is None


@pytest.mark.parametrize(
    ("path", "is_left"),
    [
        ("events/a-0_0-1-2_20260301.parquet", False),
        ("events/b-0_0-1-2_20260301.parquet", True),
        ("events/.hoodie/.temp/20260301/a-0_0-1-2_20260301.parquet.marker.CREATE", True),
        ("events/.hoodie/.temp/20260301/b-0_0-1-2_20260301.parquet.marker.CREATE", False),
        ("events/_delta_log/00000000000000000100.checkpoint.parquet", False),
        ("events/.hoodie/decisions/00000000000000000000.json", False),
    ],
)
def test_files_that_no_table_names_and_markers_of_those_that_one_names_are_left_over(path: str, is_left: bool) -> None:
    assert is_left_over(path, {"a-0_0-1-2_20260301.parquet"}) == is_left


def line(message: str, **fields: str) -> str:
    return json.dumps({"logger": "ingest.cli.logs", "message": message, **fields})


@pytest.mark.parametrize(
    ("code", "log", "complaint"),
    [
        (0, line("done"), None),
        (6, line("no answer", kind="StoreUnavailableError"), None),
        (8, line("a task failed", kind="SparkJobError"), None),
        (-signal.SIGKILL, line("killed while it wrote") + '\n{"logger": "inge', None),
        (0, line("handled", error="Traceback", logger="ingest.driver.loop"), "logged a traceback"),
        (0, line("from a library", error="Traceback", logger="aiobotocore"), None),
        (1, line("unforeseen KeyError"), "ended with code 1: unforeseen KeyError"),
        (4, line("the log was cut off", kind="SourceChangedError"), "ended with code 4: the log was cut off"),
        (5, line("does not fit", kind="TargetRefusedError"), "ended with code 5 by TargetRefusedError"),
        (6, line("epochs have a gap", kind="InvariantError"), "ended with code 6 by InvariantError"),
        (0, "Fatal Python error\n" + line("done"), "logged what is not JSON: Fatal Python error"),
    ],
)
def test_command_may_end_by_a_fault_and_by_nothing_else(code: int, log: str, complaint: str | None) -> None:
    found = complaint_about(code, {*ORDERLY_CODES, -signal.SIGKILL}, log)
    assert (found or "").startswith(complaint or "") and bool(found) == bool(complaint)
