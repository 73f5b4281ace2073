"""Human-readable output of `tideline inspect`: one instant from its headline to its files."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ingest.reports.inspection import Inspection
from ingest.reports.instants import instant_style
from ingest.reports.recovery_text import recovery_lines
from timeline.formatting import number, size
from timeline.history.entry import Entry
from timeline.instant import Action

MOST_SHARDS = 20
"""Shards, and reasons of rejected rows, that are listed; JSON has all of them."""

_LABEL = 10


def inspection_page(inspection: Inspection, most_files: int) -> Group:
    """The output of `tideline inspect`.

    Args:
        inspection: the instant.
        most_files: number of files listed; 0: all.
    """
    return Group(*_page(inspection, most_files))


def _page(inspection: Inspection, most_files: int) -> Iterator[RenderableType]:
    yield _headline(inspection)
    yield _facts(inspection)
    if inspection.preview is not None:
        yield _title("what recovery would do now")
        yield Padding(Group(*_prospect_lines(inspection)), (0, 0, 0, 2))
    yield _title("when (UTC)")
    yield _times(inspection)
    if inspection.entry.parts:
        yield _title("targets")
        yield _targets(inspection.entry)
    if inspection.offsets:
        yield _title(_shown_of("shards", len(inspection.offsets), MOST_SHARDS, "--json has all"))
        yield _shards(inspection)
    if inspection.rejected:
        yield _title("rejected rows")
        yield _rejected(inspection)
    if inspection.files:
        what = "files deleted" if inspection.entry.instant.action is Action.ROLLBACK else "files"
        yield _title(_shown_of(what, len(inspection.files), most_files, "--files 0 shows all"))
        yield _files(inspection, most_files)
    for problem in inspection.entry.problems:
        yield Text(f"not read: {problem}", style="yellow")


def _headline(inspection: Inspection) -> Text:
    shown, entry = inspection.shown, inspection.entry
    state = shown.state
    if shown.state == "inflight" and entry.manifest is not None:
        state = "inflight, prepared"
    epoch = "" if shown.epoch is None else f" · epoch {shown.epoch}"
    style = instant_style(shown.action, shown.state) or "green"
    return Text(f"{shown.action} {shown.time}{epoch} · {state}", style=f"bold {style}")


def _facts(inspection: Inspection) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, min_width=_LABEL, style="bold")
    table.add_column(overflow="fold")
    for label, words in _fact_lines(inspection):
        table.add_row(label, Text(words))
    return table


def _fact_lines(inspection: Inspection) -> Iterator[tuple[str, str]]:
    entry, shown = inspection.entry, inspection.shown
    decision = entry.decision
    if entry.instant.action is Action.ROLLBACK:
        yield "why", shown.reason or "nothing says why"
        yield "by", shown.by or "another writer than Tideline"
    if decision is not None:
        about = "" if decision.instant == shown.time else f" of instant {decision.instant}"
        yield "decision", f"{decision.outcome.value}{about}, by {decision.by} (generation {decision.generation})"
        yield "reason", decision.reason
    elif shown.epoch is not None:
        yield "decision", "none yet: neither committed nor rolled back"
    if entry.plan is not None:
        plan = entry.plan
        yield "planned by", f"{plan.writer} (generation {plan.ref.generation}) of job {plan.job}"
        yield "for", ", ".join(plan.targets)
    if entry.manifest is not None:
        read = sum(count.read for count in entry.manifest.counts)
        yield "rows", f"{read:,} read: {entry.manifest.rows:,} accepted, {entry.manifest.rejected:,} quarantined"
    elif entry.instant.action is Action.COMMIT and entry.is_tideline and not entry.problems:
        yield "rows", "not known: not prepared yet"
    elif shown.rows is not None:
        yield "rows", f"{shown.rows:,}"
    for shard, holes in (shown.lost or {}).items():
        yield "lost", "; ".join(f"{shard} {hole}" for hole in holes)


def _prospect_lines(inspection: Inspection) -> Iterator[Text]:
    preview = inspection.preview
    assert preview is not None
    if preview.words:
        yield Text(preview.words)
        return
    for line in recovery_lines(preview.recovery, dry_run=True):
        if not line.startswith("instant "):
            yield Text(line.strip(), style="bold" if line.lstrip().startswith("→") else "")


def _times(inspection: Inspection) -> Table:
    table = _table("", "at>", "after>")
    table.show_header = False
    for reached in inspection.reached:
        after = "" if reached.after_s is None else f"+{reached.after_s:.3f} s"
        table.add_row(reached.state, moment_text(reached.at), after)
    if inspection.shown.seconds is not None:
        table.add_row("", "in all", f"{inspection.shown.seconds:.3f} s")
    return table


def moment_text(at: datetime) -> str:
    """A moment as text, UTC, to the millisecond."""
    return f"{at:%Y-%m-%d %H:%M:%S}.{at.microsecond // 1000:03d}"


def _targets(entry: Entry) -> Table:
    table = _table("target", "rows>", "dropped>", "rejected>", "files>", "size>")
    for part in entry.parts:
        numbers = (part.rows, part.dropped, part.rejected, len(part.files))
        table.add_row(Text(part.target), *map(number, numbers), size(part.bytes))
    return table


def _shards(inspection: Inspection) -> Table:
    has_lost = any(row.lost for row in inspection.offsets)
    table = _table("shard", "from>", "until>", "read>", "accepted>", "rejected>", *(("lost",) if has_lost else ()))
    for row in inspection.offsets[:MOST_SHARDS]:
        numbers = (row.start, row.until, row.read, row.accepted, row.rejected)
        lost = (Text(row.lost or "", style="red"),) if has_lost else ()
        table.add_row(Text(row.shard), *map(number, numbers), *lost)
    return table


def _rejected(inspection: Inspection) -> Table:
    table = _table("rows>", "shard", "reason")
    for row in inspection.rejected[:MOST_SHARDS]:
        table.add_row(f"{row.rows:,}", Text(row.shard or f"target {row.target}"), Text(row.reason))
    return table


def _files(inspection: Inspection, most_files: int) -> Table:
    files = inspection.files[: most_files or len(inspection.files)]
    is_known = any(file.rows is not None for file in files)
    table = _table("target", *(("rows>", "size>") if is_known else ()), "path")
    for file in files:
        sizes = (number(file.rows), "" if file.bytes is None else size(file.bytes)) if is_known else ()
        table.add_row(Text(file.target or ""), *sizes, Text(file.path))
    return table


def _table(*names: str) -> Table:
    """A table without lines, for below a title; columns whose names end with ``>`` hold numbers."""
    table = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 2, 0, 2), collapse_padding=True)
    for name in names:
        is_number = name.endswith(">")
        table.add_column(name.rstrip(">"), justify="right" if is_number else "left", no_wrap=is_number, overflow="fold")
    return table


def _title(words: str) -> Text:
    return Text(f"\n{words}", style="bold")


def _shown_of(what: str, there: int, most: int, how: str) -> str:
    return f"{what} ({most} of {there:,}; {how})" if most and there > most else what
