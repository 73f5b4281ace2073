"""Human-readable output of `tideline offsets`: a summary line, and a row for each shard."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ingest.reports.offsets import JobOffsets, ShardOffsets, ShardState
from timeline.formatting import amount, count, number, shard_name

_STYLES = {ShardState.LOST: "red", ShardState.GONE: "dim", ShardState.BEHIND: "yellow", ShardState.NEW: "yellow"}
_URGENT = (
    *(ShardState.LOST, ShardState.UNKNOWN, ShardState.BEHIND, ShardState.NEW),
    *(ShardState.CURRENT, ShardState.GONE),
)
_LEAST_NAME = 16


def offsets_page(offsets: JobOffsets, *, limit: int, width: int) -> Group:
    """The output of `tideline offsets`.

    Args:
        offsets: offsets of the shards.
        limit: number of shards shown, the most urgent first; 0: all.
        width: terminal width, columns.
    """
    return Group(*_page(offsets, limit, width))


def _page(offsets: JobOffsets, limit: int, width: int) -> Iterator[RenderableType]:
    yield _summary(offsets)
    if offsets.unknown is not None:
        yield Text(f"newest and lag are not known: {offsets.unknown}", style="red" if offsets.is_silent else "yellow")
    if offsets.pending:
        words = f"{count(offsets.pending, 'instant')} pending: not committed before it is decided"
        yield Text(words, style="yellow")
    rows = sorted(offsets.shards, key=lambda row: (_URGENT.index(row.state), -(row.lag or 0), row.shard))
    shown = rows[: limit or len(rows)]
    if not shown:
        return
    yield _table(shown, width)
    if len(rows) > len(shown):
        yield Text(f"{count(len(rows) - len(shown), 'more shard')} not shown (--limit 0 shows all)")
    if any(row.epoch is None and row.committed is not None for row in shown) and offsets.looked_from:
        yield Text(f"no epoch: moved before epoch {offsets.looked_from} (--epochs 0 looks at all)", style="dim")
    for row in shown:
        yield from _remarks(row)


def _summary(offsets: JobOffsets) -> Text:
    shards = count(len(offsets.shards), "shard")
    if not offsets.next_epoch:
        shards = f"no epoch yet, {shards}"
    words = [shards]
    if offsets.lag is not None and offsets.unit is not None:
        words.append(f"{amount(offsets.lag, offsets.unit.value)} behind" if offsets.lag else "nothing behind")
    words += [f"{offsets.count(state)} {state.value}" for state in (ShardState.LOST, ShardState.GONE)]
    return Text(" · ".join(word for word in words if not word.startswith("0 ") or "behind" in word), style="bold")


def _table(rows: list[ShardOffsets], width: int) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0), collapse_padding=True)
    numbers = [_numbers(row) for row in rows]
    taken = sum(max(map(len, column)) + 2 for column in zip(_HEADS, *numbers, strict=True))
    room = max(_LEAST_NAME, width - taken - 2)
    table.add_column("shard", no_wrap=True)
    for name in _HEADS:
        table.add_column(name, justify="left" if name == "state" else "right", no_wrap=True)
    for row, cells in zip(rows, numbers, strict=True):
        table.add_row(Text(shard_name(row.shard, room)), *cells, style=_STYLES.get(row.state))
    return table


_HEADS = ("state", "committed", "newest", "lag", "epoch")


def _numbers(row: ShardOffsets) -> tuple[str, ...]:
    committed = "-" if row.committed is None else number(row.committed)
    newest = "?" if row.state is ShardState.UNKNOWN else "-" if row.newest is None else number(row.newest)
    lag = "?" if row.state is ShardState.UNKNOWN else number(row.lag)
    return row.state.value, committed, newest, lag, number(row.epoch)


def _remarks(row: ShardOffsets) -> Iterator[Text]:
    if row.lost is not None:
        said = f"{row.shard}: not read and gone: {row.lost}"
        words = f"{said}. tideline run stops there; tideline run --accept-loss goes on behind it"
        yield Text(words, style="red")
    elif row.note and row.state is not ShardState.GONE:
        yield Text(f"{row.shard}: {row.note}", style="red" if row.state is ShardState.LOST else "yellow")
    for known in row.holes:
        yield Text(f"{row.shard}: epoch {known.epoch} went on behind a loss: {known.hole}", style="yellow")
