"""Log records of the command line: the project's own always, those of libraries with details only."""

from __future__ import annotations

import json
import logging
import warnings

import pytest
from rich.console import Console

from ingest.cli.console import summary_text
from ingest.cli.logs import configure_logging, report_failure
from ingest.driver.fsck import FsckResult
from ingest.driver.summary import Summary
from ingest.reports.fsck_text import fsck_lines
from timeline.epoch import EpochRef
from timeline.formatting import amount, shortened


def log_as_a_library() -> None:
    """py4j logs this record when Spark's JVM dies in a call, besides the error that it raises."""
    try:
        raise ConnectionResetError("reset by peer")
    except ConnectionResetError:
        logging.exception("Exception while sending command.")


@pytest.mark.parametrize("as_json", [True, False])
def test_libraries_records_are_details(as_json: bool, capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(Console(stderr=True), as_json=as_json, verbose=False)
    log_as_a_library()
    logging.getLogger("ingest.driver.loop").info("epoch 0")
    err = capsys.readouterr().err
    assert "epoch 0" in err
    assert "Traceback" not in err
    assert "sending command" not in err


def test_with_details_a_library_has_its_say_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(Console(stderr=True), as_json=True, verbose=True)
    log_as_a_library()
    (record,) = map(json.loads, capsys.readouterr().err.splitlines())
    assert record["message"] == "Exception while sending command."
    assert "ConnectionResetError" in record["error"]


def test_a_warning_of_python_is_a_record(capsys: pytest.CaptureFixture[str]) -> None:
    """PySpark emits this warning when its JVM has died; a line that is not JSON would break readers of the log."""
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        configure_logging(Console(stderr=True), as_json=True, verbose=False)
        warnings.warn("Unable to cleanly shutdown", RuntimeWarning, stacklevel=1)
    (record,) = map(json.loads, capsys.readouterr().err.splitlines())
    assert record["level"] == "WARNING"
    assert "RuntimeWarning: Unable to cleanly shutdown" in record["message"]


def test_a_record_about_an_epoch_has_its_ids_as_fields(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(Console(stderr=True), as_json=True, verbose=False)
    log = logging.getLogger("ingest.protocol.steps")
    log.info("%s: %s → %s", EpochRef(7, "20260301101530123", 3), "requested", "inflight")
    log.warning("callback", extra={"epoch": 8, "instant": "20260301101530999"})
    log.info("%s gone", EpochRef(-1, "20260301101530124", 3))
    log.info("started")
    report_failure("it failed", "TargetError", about=EpochRef(9, "20260301101530125", 3))
    records = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(record.get("epoch"), record.get("instant")) for record in records] == [
        (7, "20260301101530123"),
        (8, "20260301101530999"),
        (None, "20260301101530124"),
        (None, None),
        (9, "20260301101530125"),
    ]
    assert (records[-1]["level"], records[-1]["kind"]) == ("ERROR", "TargetError")


def test_counts_agree_with_their_nouns_and_texts_are_cut_between_words() -> None:
    one = Summary(epochs=1, rows=1, rejected=0)
    assert summary_text("job", one, 1.0) == "job: done: 1 epoch, 1 row committed, 0 quarantined in 1.0 s"
    assert (amount(1, "records"), amount(1200, "records")) == ("1 record", "1,200 records")
    found = FsckResult(1, 1, {"lake": "1 file of 9 bytes"}, ())
    assert next(fsck_lines(found)) == "1 completed epoch with 1 row"
    text = "the Delta table cannot take these rows, column `host` is text"
    assert shortened(text, 45) == "the Delta table cannot take these rows…"
    assert shortened("x" * 60, 20) == "x" * 19 + "…"
    assert all(len(shortened(text, most)) <= most for most in range(2, 80))
