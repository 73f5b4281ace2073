"""Runs all checks on one store, below a scratch prefix that is removed afterwards, and reports the results."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from rich.table import Table
from rich.text import Text

from ingest.check_store import checks, rehearsals
from ingest.check_store.checks import CheckContext, CheckOutcome, CheckVerdict
from timeline.errors import ConfigError, StoppedError, StoreError, TidelineError
from timeline.failpoints import COMMON_POINTS
from timeline.stores.base import ObjectStore, Retry
from timeline.stores.opening import open_store

log = logging.getLogger(__name__)

Check = Callable[[CheckContext], CheckOutcome]

PUT_IF_ABSENT = "put-if-absent"
"""Name of the check that the meaning of all others depends on."""

CRASHES = "crashes are recovered"

_ROUNDS, _QUICK_ROUNDS = 20, 5
_STYLES = {CheckVerdict.OK: "green", CheckVerdict.FAILED: "bold red", CheckVerdict.SKIPPED: "yellow"}


@dataclass(frozen=True)
class CheckResult:
    """Result of one check."""

    check: str
    verdict: CheckVerdict
    seen: str


@dataclass(frozen=True)
class StoreReport:
    """Results of all checks.

    Attributes:
        url: the store that was checked.
        findings: a result for each check, in order.
    """

    url: str
    findings: Sequence[CheckResult]

    @property
    def failed(self) -> list[str]:
        """Names of the checks that failed."""
        return [finding.check for finding in self.findings if finding.verdict is CheckVerdict.FAILED]

    @property
    def is_safe(self) -> bool:
        """Whether the store can hold a timeline and lake targets."""
        return not self.failed

    @property
    def conclusion(self) -> str:
        """The report in one line."""
        return "safe for Tideline" if self.is_safe else f"NOT safe: {', '.join(self.failed)}"


def check_store(
    url: str,
    storage: Mapping[str, Any],
    *,
    quick: bool = False,
    stop: threading.Event | None = None,
    on_check: Callable[[str], None] = lambda name: None,
) -> StoreReport:
    """Run all checks on a store; all scratch objects are removed, or a warning names their prefix.

    Args:
        url: place of a timeline or a target; existing objects are not touched.
        storage: fsspec options; may hold secrets.
        quick: fewer rounds and crash points.
        stop: set from outside to end early.
        on_check: called with the name of each check before it begins.

    Raises:
        StoreUnavailableError: the store does not accept an object.
        StoppedError: `stop` was set.
    """
    with _scratch(url, storage) as store:
        context = CheckContext(store, storage, _QUICK_ROUNDS if quick else _ROUNDS, stop or threading.Event())
        Retry().call(partial(store.put, "access", b""))
        findings: list[CheckResult] = []
        for name, check in _checks(quick):
            context.raise_if_stopped()
            on_check(name)
            if name == CRASHES and any(finding.verdict is CheckVerdict.FAILED for finding in findings):
                outcome = checks.skipped("a store that fails a check before is not worth the time")
            else:
                outcome = _tried(check, context)
            findings.append(CheckResult(name, outcome.verdict, outcome.seen))
    return StoreReport(open_store(url, storage).url, findings)


def findings_table(report: StoreReport) -> Table:
    """The report as a table."""
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0), collapse_padding=True)
    table.add_column("check", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("what was seen", overflow="fold")
    for finding in report.findings:
        verdict = Text(finding.verdict.value, style=_STYLES[finding.verdict])
        table.add_row(Text(finding.check), verdict, Text(finding.seen))
    return table


def report_json(report: StoreReport) -> dict[str, object]:
    """The report as JSON."""
    findings = [{**asdict(finding), "verdict": finding.verdict.value} for finding in report.findings]
    return {"url": report.url, "safe": report.is_safe, "conclusion": report.conclusion, "checks": findings}


def storage_options(pairs: Sequence[str], given: Mapping[str, Any]) -> dict[str, Any]:
    """Options for fsspec from ``key=value`` pairs: a dot leads into a block, ``true`` and ``false`` are booleans.

    Args:
        pairs: as on a command line, for example ``client_kwargs.endpoint_url=http://127.0.0.1:9000``.
        given: options that the pairs add to, or replace.

    Raises:
        ConfigError: a pair has no key or no ``=``; the message shows no value.
    """
    options = dict(given)
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not (name and equals):
            raise ConfigError(
                f"--option {name!r}: allowed is key=value, for example client_kwargs.region_name=eu-west-1"
            )
        *blocks, key = name.split(".")
        block = options
        for each in blocks:
            block[each] = dict(block.get(each) or {})
            block = block[each]
        block[key] = {"true": True, "false": False}.get(value, value)
    return options


def _checks(quick: bool) -> Sequence[tuple[str, Check]]:
    points = rehearsals.QUICK_POINTS if quick else COMMON_POINTS
    return (
        (PUT_IF_ABSENT, checks.one_creator_wins),
        ("reads after writes", checks.reads_see_the_latest_write),
        ("listings after writes", checks.listings_see_the_latest_write),
        ("replacing is atomic", checks.replacement_is_atomic),
        ("long listings", checks.long_listing_is_complete),
        ("uploads are invisible", checks.upload_is_invisible_until_closed),
        ("given up uploads", checks.given_up_upload_leaves_nothing),
        ("Delta versions", rehearsals.one_table_version_wins),
        ("clock", checks.clocks_agree),
        ("latency", checks.latencies),
        (CRASHES, partial(rehearsals.every_crash_is_recovered, points=points)),
    )


def _tried(check: Check, context: CheckContext) -> CheckOutcome:
    """Run a check; any Tideline error but a stop (no reply, a broken protocol) is a failure of the store."""
    try:
        return check(context)
    except StoppedError:
        raise
    except TidelineError as error:
        return checks.failed(f"{type(error).__name__}: {error}")


@contextlib.contextmanager
def _scratch(url: str, storage: Mapping[str, Any]) -> Iterator[ObjectStore]:
    """A new prefix below a URL, used by no other process; removed on exit, also after an error."""
    store = open_store(f"{open_store(url, storage).url.rstrip('/')}/tideline-check-{uuid.uuid4().hex[:12]}", storage)
    made = store.absent_folders()
    try:
        yield store
    finally:
        try:
            _remove(store, made)
        except StoreError as error:
            log.warning("%s is left, remove it by hand: %s", store.url, error)


def _remove(store: ObjectStore, folders: Sequence[str]) -> None:
    if folders:
        shutil.rmtree(folders[0], ignore_errors=True)
        for folder in folders[1:]:
            with contextlib.suppress(OSError):  # another program has put a file there
                os.rmdir(folder)
        return
    retry = Retry()
    paths = [info.path for info in retry.call(lambda: store.list("", recursive=True))]
    retry.call(partial(store.delete, paths))
