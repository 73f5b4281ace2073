"""Options and output of `tideline replay`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ingest.driver.put_back import ReplayResult
from ingest.driver.ways_back import Lost, RowOrigin
from sinks.held import Span, is_single, span_text, spans
from timeline.epoch import Json
from timeline.errors import ConfigError
from timeline.units import count

_NOTHING_LOST = "nothing is lost: every target has all committed epochs"
_GIVEN_UP_IN_DOUBT = "nothing put back; how many rows are given up cannot be told"
_EPOCHS = re.compile(r"(\d+)(?:\.\.(\d+))?")


def parse_epochs(given: str) -> Span:
    """Parse ``3..7``, or ``3`` alone.

    Raises:
        ConfigError: the text is neither.
    """
    found = _EPOCHS.fullmatch(given.strip())
    if found is None or int(found[2] or found[1]) < int(found[1]):
        raise ConfigError(f"--epochs {given}: give the first and the last one, such as 3..7, or one alone")
    return int(found[1]), int(found[2] or found[1])


def replay_lines(found: ReplayResult, *, dry_run: bool) -> Iterator[str]:
    """Human-readable lines: the lost epochs, and the result for each."""
    if not found.losses:
        nothing = f"nothing more is lost; {_before(found)}" if found.before else _NOTHING_LOST
        yield nothing if not found.not_compared else f"nothing is known to be lost. {_not_compared(found)}"
        return
    yield from map(str, found.losses)
    would = "would be " if dry_run else ""
    for way in (RowOrigin.FILES, RowOrigin.COPY, RowOrigin.SOURCE):
        for is_left_out, what in ((False, "put back"), (True, "put there")):
            mine = [each for each in found.back if each.way is way and each.epoch.is_left_out is is_left_out]
            yield from _lines(mine, f"{would}{what} {way.value}")
    yield from _lines(found.given_up, f"{would}given up")
    if dry_run and found.back:
        yield "  rows that others had deleted or changed in these epochs come back as they were first written"
    if found.refused:
        yield f"nothing is done like this: {found.refused}"
    elif found.epoch is not None:
        yield f"epoch {found.epoch}: {', '.join(_done(found)) or _GIVEN_UP_IN_DOUBT}"


def _done(found: ReplayResult) -> Iterator[str]:
    for lost, what in ((found.back, "put back"), (found.given_up, "given up")):
        if lost:
            yield f"{count(sum(each.epoch.part.rows for each in lost), 'row')} {what}"


def _not_compared(found: ReplayResult) -> str:
    names = ", ".join(found.not_compared)
    does = "whose sink does" if len(found.not_compared) == 1 else "whose sinks do"
    return f"Not compared: {names}, {does} not record the epochs of the target"


def _before(found: ReplayResult) -> str:
    return "; ".join(
        f"{span_text(among)} ({count(rows, 'row')}) of {target} {'was' if is_single(among) else 'were'} given up"
        for target, among, rows in _given_up_before(found)
    )


def _given_up_before(found: ReplayResult) -> Iterator[tuple[str, tuple[Span, ...], int]]:
    for target, lost in found.before.items():
        yield target, spans(each.part.epoch.epoch for each in lost), sum(each.part.rows for each in lost)


def _lines(lost: Sequence[Lost], what: str) -> Iterator[str]:
    for target in dict.fromkeys(each.target for each in lost):
        mine = [each for each in lost if each.target == target]
        rows = sum(each.epoch.part.rows for each in mine)
        yield f"  {target}: {span_text(spans(each.number for each in mine))} ({count(rows, 'row')}) {what}"
        for each in mine:
            if each.why:
                yield f"    epoch {each.number}: {each.why}"


def replay_json(found: ReplayResult, *, dry_run: bool) -> dict[str, Json]:
    """The replay as one JSON object."""
    return {
        "dry_run": dry_run,
        "losses": [
            {
                "target": loss.target,
                "how": loss.how,
                "epochs": [list(span) for span in loss.numbers],
                "rows": loss.rows,
                "doubt": loss.doubt or None,
            }
            for loss in found.losses
        ],
        "back": [_json(each) for each in found.back],
        "given_up": [_json(each) for each in found.given_up],
        "given_up_before": [
            {"target": target, "epochs": [list(span) for span in among], "rows": rows}
            for target, among, rows in _given_up_before(found)
        ],
        "not_compared": list(found.not_compared),
        "refused": found.refused or None,
        "epoch": found.epoch,
    }


def _json(lost: Lost) -> Json:
    return {
        "target": lost.target,
        "epoch": lost.number,
        "rows": lost.epoch.part.rows,
        "way": lost.way.name.lower(),
        "why": lost.why or None,
    }
