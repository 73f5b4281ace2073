"""One table of exit codes for all errors, in code and docs; a cause has the same code in driver and tasks."""

from __future__ import annotations

import errno
import inspect
import os
import re
from pathlib import Path

import pytest

from ingest.cli.exit_codes import EXIT_CODES, code_of, exit_code
from ingest.sources.files.raw import unavailable
from timeline import errors
from timeline.errors import (
    CommitRejectedError,
    SourceError,
    StoreFullError,
    StoreRefusedError,
    StoreUnavailableError,
    TidelineError,
)
from timeline.stores.base import Retry, create_or_read
from timeline.stores.opening import open_store
from timeline.stores.refusals import refusal, store_error

CLI = (Path(__file__).parents[4] / "docs" / "cli.md").read_text()
AT_ONCE = Retry(sleep=lambda wait_s: None)


def test_the_page_has_the_rows_of_the_table_and_what_may_be_started_again() -> None:
    section = CLI.split("## Exit codes")[1]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:2] == "| "]
    assert cells[1:] == [[str(row.code), row.meaning, row.advice] for row in EXIT_CODES]
    restarts = re.search(r"A supervisor can restart after ([\d, and]+),", section)
    assert restarts is not None
    assert re.findall(r"\d+", restarts[1]) == [str(row.code) for row in EXIT_CODES if row.restarts]


def test_every_error_has_a_code_that_the_table_names() -> None:
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, TidelineError)]
    codes = {kind.__name__: code_of(kind) for kind in kinds}
    assert set(codes.values()) <= {row.code for row in EXIT_CODES}
    assert {name for name, code in codes.items() if code == 6} == {
        "AlreadyExistsError",
        "FormatError",
        "HaltError",
        "InvariantError",
        "NotFoundError",
        "RowCountError",
        "StoreError",
        "StoreFullError",
        "StoreUnavailableError",
        "TidelineError",
    }, "what falls to the root does so on purpose"
    assert codes["RangeGoneError"] == codes["SourceChangedError"] == codes["DataError"] == 4
    assert codes["StoreRefusedError"] == codes["UntrustedStoreError"] == codes["ConfigError"] == 2
    assert (codes["ReplayNeededError"], codes["CommitUnknownError"], codes["OutrunError"]) == (9, 5, 7)


@pytest.mark.parametrize(("cause", "code"), [(StoreFullError, 6), (StoreRefusedError, 2), (StoreUnavailableError, 5)])
def test_a_commit_that_fails_for_a_full_disk_or_a_wrong_key_ends_as_that(cause: type[TidelineError], code: int) -> None:
    failed = CommitRejectedError("epoch 7 did not get into the table")
    failed.__cause__ = StoreUnavailableError("created or not, unknown")
    failed.__cause__.__cause__ = cause("why")
    assert exit_code(failed) == code


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_has_the_same_class_and_words_in_driver_and_tasks(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_space(*arguments: object, **options: object) -> int:
        raise OSError(number, os.strerror(number), "somewhere")

    store = open_store(str(tmp_path))
    arrow = store_error("writing", OSError(number, "Error writing bytes to file"), "Error writing bytes to file")
    delta_rs = store_error("table", OSError(f"{os.strerror(number)} (os error {number})"), "the log")
    monkeypatch.setattr(os, "write", no_space)
    monkeypatch.setattr(os, "open", no_space)
    with pytest.raises(StoreFullError) as driver:
        create_or_read(store, "a", b"1", AT_ONCE)
    for error in (driver.value, arrow, delta_rs):
        assert isinstance(error, StoreFullError)
        assert "the disk is full: free space there, then start again" in str(error)
        assert exit_code(error) == 6


def test_a_folder_that_may_not_be_written_to_is_asked_for_once_and_says_what_to_do() -> None:
    error = store_error("lake", PermissionError(errno.EACCES, "Permission denied"), "Permission denied")
    asked = []

    def ask() -> None:
        asked.append(1)
        raise error

    with pytest.raises(StoreRefusedError, match="let the user of this process read and write there"):
        AT_ONCE.call(ask)
    assert len(asked) == 1


@pytest.mark.parametrize("code", ["AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "NoCredentialsError"])
def test_a_wrong_key_or_secret_says_what_to_check_and_not_to_start_again(code: str) -> None:
    for error in (
        refusal("s3://lake/a", code, "no"),
        refusal("s3://lake/table", "", f"{code}: the request is refused"),
    ):
        assert error is not None and exit_code(error) == 2
        assert "check storage (key, secret, token)" in str(error) and "start again" not in str(error).lower()
    assert refusal("s3://lake/403/a", "SlowDown", "403 of them") is None
    assert refusal("s3://lake/a", "", "SlowDown: later") is None


@pytest.mark.parametrize(
    "failure",
    [
        PermissionError(errno.EACCES, "Permission denied"),
        PermissionError("The AWS Access Key Id you provided does not exist"),
        IsADirectoryError(errno.EISDIR, "Is a directory"),
        OSError(errno.EIO, os.strerror(errno.EIO)),
        OSError(errno.ELOOP, os.strerror(errno.ELOOP)),
    ],
)
def test_a_source_file_that_cannot_be_read_ends_with_code_4_and_its_path(failure: OSError) -> None:
    with pytest.raises(SourceError, match=r"source file logs/a\.jsonl cannot be read") as raised:
        unavailable("logs/a.jsonl", failure)
    assert exit_code(raised.value) == 4


@pytest.mark.parametrize("failure", [OSError(errno.EIO, "We encountered an internal error"), ConnectionResetError()])
def test_a_store_that_does_not_answer_is_asked_for_a_source_file_again(failure: OSError) -> None:
    with pytest.raises(StoreUnavailableError):
        unavailable("lake/a.jsonl", failure)


def test_an_error_that_was_raised_from_itself_has_its_exit_code() -> None:
    error = errors.SparkJobError("a task failed")
    error.__cause__ = error
    assert exit_code(error) == 8
