"""A report as one HTML page: no script, no network request, readable on a phone, in dark mode and in print."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from ingest.reports.offsets import JobOffsets, ShardOffsets, ShardState
from ingest.reports.recovery_html import found_html
from ingest.reports.report import (
    JobReport,
    Level,
    Notice,
    findings,
    lagging,
    level_of,
    newest_offsets,
    rejected_by_reason,
    replayed_records,
    situation,
    waiting,
)
from timeline.formatting import count, duration, size
from timeline.history.rows import EpochRow, InstantRow
from timeline.html import Html, element, facts_table, moment, table, together
from timeline.lease import LeaseState

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_SHARDS = 50
MOST_REASONS = 50
MOST_ROLLBACKS = 20
MOST_PROBLEMS = 50

_HEADLINES = {
    Level.WELL: ("✓", "All is well"),
    Level.LOOK: ("!", "Have a look"),
    Level.ACT: ("✕", "Something has to be done"),
}

_STYLE = """
:root{color-scheme:light dark;--page:#fff;--ink:#1b1b1b;--faint:#5c5c5c;--line:#ddd;--card:#f6f6f6;
--well:#00694d;--look:#8a5a00;--act:#b03a00}
@media (prefers-color-scheme:dark){:root{--page:#17191c;--ink:#e8e8e8;--faint:#a8a8a8;--line:#3a3d42;--card:#22252a;
--well:#4fd1a5;--look:#f0b94a;--act:#ff8a57}}
*{box-sizing:border-box}
body{margin:0 auto;padding:1.5rem;max-width:72rem;font:16px/1.5 system-ui,sans-serif;color:var(--ink);
background:var(--page)}
h1{font-size:1.5rem;margin:0}h2{font-size:1.2rem;margin:2.2rem 0 .5rem}
p{margin:.4rem 0}.faint{color:var(--faint)}code{font-size:.92em;overflow-wrap:anywhere}
.verdict{border-left:.6rem solid;border-radius:.3rem;padding:.8rem 1.2rem;margin:1.2rem 0;background:var(--card)}
.verdict strong{display:block;font-size:1.6rem;line-height:1.3}.verdict ul{margin:.5rem 0 0;padding-left:1.2rem}
.well{border-color:var(--well)}.well strong{color:var(--well)}
.look{border-color:var(--look)}.look strong{color:var(--look)}
.act{border-color:var(--act)}.act strong{color:var(--act)}
.wide{overflow-x:auto}table{border-collapse:collapse;font-size:.92rem;font-variant-numeric:tabular-nums}
tr{border-bottom:1px solid var(--line)}th{font-weight:600}tbody th{color:var(--faint);font-weight:400}
td{overflow-wrap:break-word;max-width:28rem}td code{white-space:nowrap}
figure{margin:1rem 0;padding:.6rem;background:#fff;border:1px solid var(--line);border-radius:.3rem}
figure img{display:block;width:100%;height:auto}
@media print{body{max-width:none;padding:0;font-size:11pt;color:#000;background:#fff}.wide{overflow:visible}
.verdict,figure,tr{break-inside:avoid}h2{break-after:avoid}
.verdict{background:none;border:1px solid #000;border-left-width:.6rem}}
"""


def page(report: JobReport) -> str:
    """The report as an HTML 5 page.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    found = findings(report)
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        # The browser fetches nothing, whatever URL a name in storage contains.
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("title", f"{report.job}: {_HEADLINES[level_of(found)][1].lower()}"),
        element("style", Html(_STYLE)),
    )
    body = element("body", _head(report), _verdict(report, found), element("main", *_sections(report)))
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def _head(report: JobReport) -> Html:
    left = f"; {count(report.older, 'older instant')} not looked at" if report.older else ""
    words = f"looked at {moment(report.at)}, {count(len(report.history.entries), 'instant')}{left}"
    return element(
        "header",
        element("h1", report.job),
        element("p", element("code", report.place), ", ", words, class_="faint"),
    )


def _verdict(report: JobReport, found: Sequence[Notice]) -> Html:
    level = level_of(found)
    sign, words = _HEADLINES[level]
    return element(
        "section",
        element("strong", f"{sign} {words}"),
        element("p", situation(report)),
        element("ul", *(element("li", finding.words) for finding in found)) if found else None,
        class_=f"verdict {level.name.lower()}",
        role="status",
    )


def _sections(report: JobReport) -> Iterator[Html]:
    epochs = report.history.epochs()
    yield facts_table(_facts(report, epochs))
    yield element("h2", "Pending instants, and what recovery would do")
    yield _pending(report)
    yield element("h2", "Pictures")
    yield from _pictures(report)
    yield element("h2", "Lag per shard")
    yield _lag(report.offsets)
    yield element("h2", "Rejected rows by reason")
    yield _rejected(report)
    yield element("h2", "Recent rollbacks")
    yield _rollbacks(report.history.instants())
    problems = _problems(report)
    if problems:
        yield element("h2", "What could not be read")
        yield element("ul", *(element("li", problem) for problem in problems[:MOST_PROBLEMS]))


def _facts(report: JobReport, epochs: Sequence[EpochRow]) -> list[tuple[str, object]]:
    done = [row for row in epochs if row.state == "committed"]
    last = report.last_committed
    undone = sum(row.outcome == "rollback" for row in epochs)
    return [
        ("last completed epoch", None if last is None else _last(last, report.at)),
        ("pending", f"{sum(row.completed is None for row in report.history.instants()):,}"),
        ("lag", _lag_words(report.offsets)),
        ("writer", _writer(report)),
        ("epochs", f"{len(done):,} committed, {undone:,} rolled back"),
        (
            "rows",
            f"{sum(row.rows or 0 for row in done):,} accepted, "
            f"{sum(rows for _, rows, _ in rejected_by_reason(report.history)):,} rejected{_replayed(report)}",
        ),
        ("data files", f"{sum(row.files or 0 for row in done):,}, {size(sum(row.bytes or 0 for row in done))}"),
    ]


def _replayed(report: JobReport) -> str:
    records = replayed_records(report.history)
    return f", after {count(records, 'record')} replayed" if records else ""


def _last(row: EpochRow, at: datetime) -> str:
    assert row.completed is not None
    age = duration(max(0.0, (at - row.completed).total_seconds()))
    return f"epoch {row.epoch}, {age} ago, at {moment(row.completed)}"


def _lag_words(offsets: JobOffsets | None) -> str:
    if offsets is None:
        return "not known"
    if offsets.lag is None:
        return f"not known: {offsets.unknown}"
    if not offsets.lag:
        return f"none, {count(len(offsets.shards), 'shard')} read to the end"
    return waiting(offsets)


def _writer(report: JobReport) -> str:
    writer = report.recovery.writer if report.recovery is not None else None
    if writer is None:
        return "none yet" if report.lease is LeaseState.NONE else "not known"
    who = f"{writer.process}, generation {writer.generation}"
    if writer.released and report.ended_by:
        return f"none now; the last one ({who}) was ended by: {report.ended_by}"
    if writer.released:
        return f"none now; the last one ended by itself ({who})"
    if report.lease is LeaseState.EXPIRED:
        return f"gone without an end: {who}"
    return f"may be alive: {who}"


def _pending(report: JobReport) -> Html:
    if report.recovery is None:
        return element("p", "Not known.")
    if not report.recovery.found:
        return element("p", "Nothing is pending.")
    return element("div", found_html(report.recovery), class_="wide")


def _pictures(report: JobReport) -> Iterator[Html]:
    from ingest.reports.pictures import gantt, lag, recovery, sizes, throughput

    history, offsets = report.history, report.offsets
    yield _picture("gantt", gantt(history, now=report.at))
    yield _picture("throughput", throughput(history))
    newest, stands = newest_offsets(offsets) if offsets is not None else (None, {})
    unit = offsets.unit.value if offsets is not None and offsets.unit is not None else "offsets"
    unknown = (offsets.unknown if offsets is not None else "") or ""
    yield _picture("lag", lag(history, newest, committed=stands, unit=unit, why_unknown=unknown))
    yield _picture("sizes", sizes(history))
    yield _picture("recovery", recovery(history))


def _picture(name: str, figure: Figure) -> Html:
    from ingest.reports.pictures import description, rendered

    data = base64.b64encode(rendered(figure, "svg")).decode()
    image = element("img", id=f"picture-{name}", alt=description(figure), src=f"data:image/svg+xml;base64,{data}")
    return element("figure", image)


def _lag(offsets: JobOffsets | None) -> Html:
    if offsets is None or not offsets.shards:
        return element("p", "No shard is known yet." if offsets is not None else "Not known.")
    rows = lagging(offsets)
    left = len(rows) - MOST_SHARDS
    why = element("p", f"The newest offsets are not known: {offsets.unknown}") if offsets.unknown else None
    more = element("p", f"{left:,} more: tideline offsets shows all", class_="faint") if left > 0 else None
    heads = ("shard", "state", "committed", "newest", "lag", "last epoch", "note")
    return element("div", why, table(heads, map(_shard, rows[:MOST_SHARDS])), more, class_="wide")


def _shard(row: ShardOffsets) -> tuple[object, ...]:
    notes = [row.note] if row.note else []
    notes += [f"LOST: {row.lost}"] if row.lost is not None else []
    notes += [f"hole behind which epoch {known.epoch} went on: {known.hole}" for known in row.holes]
    state = element("b", row.state.value) if row.state in (ShardState.LOST, ShardState.BEHIND) else row.state.value
    return (
        row.shard,
        state,
        _number(row.committed),
        _number(row.newest),
        _number(row.lag),
        row.epoch,
        "; ".join(notes),
    )


def _number(value: int | None) -> str | None:
    return None if value is None else f"{value:,}"


def _rejected(report: JobReport) -> Html:
    reasons = rejected_by_reason(report.history)
    if not reasons:
        return element("p", "No row was rejected.")
    total = sum(rows for _, rows, _ in reasons)
    rows = [(reason, f"{rows:,}", f"{rows / total:.1%}", where) for reason, rows, where in reasons[:MOST_REASONS]]
    return element("div", table(("reason", "rows", "share", "met last in"), rows), class_="wide")


def _rollbacks(instants: Sequence[InstantRow]) -> Html:
    undone = [row for row in instants if row.action == "rollback"]
    if not undone:
        return element("p", "Nothing was rolled back.")
    rows = [
        (element("code", row.time), row.epoch, moment(row.requested), row.reason, row.by, row.files)
        for row in reversed(undone[-MOST_ROLLBACKS:])
    ]
    left = len(undone) - len(rows)
    older = element("p", f"{count(left, 'older one')} not listed", class_="faint") if left else None
    heads = ("rollback", "epoch", "when", "why", "by", "files deleted")
    return together(element("div", table(heads, rows), class_="wide"), older)


def _problems(report: JobReport) -> list[str]:
    found = [f"{report.place}: {name} is no instant that is known" for name in report.unreadable]
    found += [f"instant {entry.instant.time}: {each}" for entry in report.history.entries for each in entry.problems]
    return found + [f"not known: {words}" for words in report.unknown]
