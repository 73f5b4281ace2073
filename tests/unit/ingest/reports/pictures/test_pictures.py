from __future__ import annotations

import io
import re
import subprocess
import sys
import warnings
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import combinations, pairwise
from typing import TYPE_CHECKING

import matplotlib
import numpy as np
import pytest
from IPython.core.formatters import DisplayFormatter
from PIL import Image

from ingest.reports.pictures import description, format_of, gantt, lag, recovery, rendered, sizes, throughput
from ingest.reports.pictures.lag import shard_lags
from ingest.reports.pictures.palette import LINES, PHASES, SpanPhase
from tests.unit.ingest.reports import made_histories as made
from tests.unit.ingest.reports.colour_vision import distance, lightness, linear, seen_without_green
from timeline.errors import ConfigError
from timeline.history.epochs import History
from timeline.instant import Action

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DAY_MS = 86_400_000
HOSTILE = "$x^{ _\\frac </script> \x00\x1b[31m 'quoted' 漢字 " + "long " * 60


def after_days() -> History:
    """A job that pauses for days, and a rollback that took a day."""
    later = [made.committed(5 + at, made.START_MS + 4 * DAY_MS + at * 2500) for at in range(6)]
    gone = made.rolled_back(12, made.START_MS + 9 * DAY_MS, after_ms=DAY_MS)
    return History((*made.steady(5), *later, gone))


def by_hudi() -> History:
    """Instants that Apache Hudi wrote."""
    actions = (Action.COMMIT, Action.CLEAN, Action.REPLACECOMMIT, Action.ROLLBACK)
    done = [made.hudi(action, made.START_MS + at * 5000) for at, action in enumerate(actions)]
    return History((*done, made.hudi(Action.COMMIT, made.START_MS + 20_000, took_ms=None)))


def hostile() -> History:
    """Texts that a format could take for markup."""
    return History(
        (
            made.committed(0, made.START_MS, rejected=3, why_rejected=HOSTILE, by=HOSTILE, reason=HOSTILE),
            made.rolled_back(1, made.START_MS + 5000, reason=HOSTILE),
        )
    )


def many() -> History:
    """10,000 epochs of 4 shards, some rolled back, with files of all sizes."""
    entries = []
    for epoch in range(10_000):
        start_ms = made.START_MS + epoch * 2500
        if epoch % 97 == 5:
            entries.append(made.rolled_back(epoch, start_ms))
        else:
            size = 1 + epoch * 7919 % 90_000_000
            pace = made.Pace(write_ms=600 + epoch * 7919 % 1400)
            entries.append(made.committed(epoch, start_ms, shards=4, file_bytes=size, pace=pace))
    return History(tuple(entries))


HISTORIES: dict[str, Callable[[], History]] = {
    "empty": History,
    "one epoch": lambda: History(tuple(made.steady(1))),
    "one pending": lambda: History((made.pending(0, made.START_MS),)),
    "eventful": made.eventful,
    "after days": after_days,
    "by Hudi": by_hudi,
    "hostile": hostile,
    "many shards": lambda: History(tuple(made.steady(5, shards=60))),
    "10,000 epochs": many,
}
PICTURES: dict[str, Callable[[History], Figure]] = {
    "gantt": gantt,
    "throughput": throughput,
    "lag": lambda history: lag(history, {"events-0": 1_000_123, "events-new $_": 7}, unit="records"),
    "lag, newest unknown": lambda history: lag(history, why_unknown=HOSTILE[:60]),
    "sizes": sizes,
    "recovery": recovery,
}


@pytest.fixture(scope="module", params=HISTORIES)
def history(request: pytest.FixtureRequest) -> History:
    made_one: History = HISTORIES[request.param]()
    return made_one


def words(figure: Figure) -> str:
    """All texts of a picture."""
    from matplotlib.text import Text

    rendered(figure, "png")
    return "\n".join(text.get_text() for text in figure.findobj(Text))


@pytest.mark.parametrize("draw", PICTURES.values(), ids=PICTURES)
def test_every_picture_of_every_timeline_is_whole_and_legible(
    history: History, draw: Callable[[History], Figure]
) -> None:
    figure = draw(history)
    picture = Image.open(io.BytesIO(rendered(figure, "png")))
    assert picture.width > 1000
    assert np.asarray(picture.convert("L")).std() > 5, "nothing is drawn"
    vectors = rendered(figure, "svg")
    assert ElementTree.fromstring(vectors).tag.endswith("svg")
    assert len(vectors) < 500_000
    said = description(figure)
    assert len(said) > 10
    assert said.isprintable()
    width, height = figure.get_size_inches()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        ink = figure.get_tightbbox()
    assert (ink.x0, ink.y0) >= (-0.02, -0.02), "something is cut off at the left or below"
    assert ink.y1 <= height + 0.02
    assert ink.x1 <= width + 0.02, "something is cut off at the right"
    for axes in figure.axes:
        assert_apart(axes)


def assert_apart(axes: Axes) -> None:
    """Check that the labels of the x axis do not overlap."""
    low, high = axes.get_xlim()
    ticks = [tick for tick in axes.xaxis.get_major_ticks() if low <= tick.get_loc() <= high]
    labels = [tick.label1 for tick in ticks if tick.label1.get_text() and tick.label1.get_visible()]
    shown = sorted((label.get_window_extent() for label in labels), key=lambda box: float(box.x0))
    assert all(one.x1 <= other.x0 for one, other in pairwise(shown)), [label.get_text() for label in labels]


def test_states_can_be_told_apart_in_a_grey_copy() -> None:
    for one, other in combinations(PHASES.values(), 2):
        assert abs(lightness(one.colour) - lightness(other.colour)) > 7
    hatches = [style.hatch for phase, style in PHASES.items() if phase is not SpanPhase.OTHER]
    assert len(set(hatches)) == len(hatches)


def test_states_and_lines_can_be_told_apart_by_people_who_see_no_green() -> None:
    styles = [style.colour for style in PHASES.values()]
    for one, other in combinations(styles, 2):
        assert distance(seen_without_green(one), seen_without_green(other)) > 20
        assert distance(linear(one), linear(other)) > 20
    for left, right in combinations(LINES, 2):
        assert distance(seen_without_green(left[0]), seen_without_green(right[0])) > 15
        assert left[1:] != right[1:], "lines differ in dashes and markers too"


def pixels(figure: Figure, colour: str) -> int:
    """Number of pixels of about this colour."""
    picture = np.asarray(Image.open(io.BytesIO(rendered(figure, "png"))).convert("RGB")).astype(int)
    wanted = [int(colour[at : at + 2], 16) for at in (1, 3, 5)]
    return int((np.abs(picture - wanted).max(axis=2) < 12).sum())


def test_the_gantt_chart_shows_as_much_of_a_state_as_there_was() -> None:
    def area(phase: SpanPhase, *rollbacks_at: int) -> int:
        entries = made.steady(8, every_ms=8000)
        for at in rollbacks_at:
            entries[at] = made.rolled_back(at, made.START_MS + at * 8000)
        return pixels(gantt(History(tuple(entries))), PHASES[phase].colour)

    none, one, four = area(SpanPhase.GIVEN_UP), area(SpanPhase.GIVEN_UP, 2), area(SpanPhase.GIVEN_UP, 2, 3, 4, 5)
    assert none == 0
    assert one > 1000
    # The legend has one more swatch of the colour, whatever the number of rollbacks.
    assert 2.5 < four / one < 4.5
    assert 0.4 < area(SpanPhase.WRITE, 2, 3, 4, 5) / area(SpanPhase.WRITE, 2) < 0.8


def test_the_gantt_chart_marks_what_is_not_ordinary() -> None:
    now = datetime(2026, 3, 1, 11, 5, tzinfo=UTC)
    said = words(gantt(made.eventful(), now=now))
    assert "6 instants completed, 1 rolled back, 1 pending" in said
    assert "rolled back: not prepared" in said
    assert f"finished by {made.RESCUER}" in said
    assert "2 h 4 min so far · pending, prepared" in said
    assert "time, UTC (2026-03-01)" in said
    assert "seconds since the request" in said


def test_rollbacks_and_pending_instants_have_markers_of_their_own() -> None:
    figure = gantt(made.eventful())
    for axes in figure.axes:
        markers = [line.get_marker() for line in axes.lines]
        assert (markers.count("X"), markers.count(">")) == (1, 1)


def test_the_gantt_chart_leaves_out_what_has_no_room_and_says_so() -> None:
    entries = made.steady(200)
    entries[3] = made.pending(3, made.START_MS + 3 * 2500)
    entries[7] = made.rolled_back(7, made.START_MS + 7 * 2500)
    said = words(gantt(History(tuple(entries)), most=10))
    assert "190 instants not drawn" in said
    assert "epoch 3 " in said
    assert "epoch 7 " in said
    assert "epoch 199 " in said
    assert "epoch 100 " not in said


def test_a_long_sleep_takes_little_room_and_is_written_there() -> None:
    said = words(gantt(after_days()))
    assert "3 d 23 h" in said
    assert "squeezed" in said
    assert "03-05" in said


def test_rates_have_units_and_rollbacks_are_marked() -> None:
    said = words(throughput(made.eventful()))
    assert "rows / s" in said
    assert "MB / s" in said
    assert "1 epoch rolled back" in said
    assert "no epoch rolled back" in words(throughput(History(tuple(made.steady(3)))))


def test_the_worst_shards_have_lines_and_the_others_one_together() -> None:
    history = History(tuple(made.steady(5, shards=60)))
    newest = {f"events-{shard}": 500 + shard for shard in range(60)}
    said = words(lag(history, newest, unit="records"))
    assert f"Lag: {sum(range(60)):,} records behind in 59 of 60 shards" in said
    assert "events-59" in said
    assert "55 other shards" in said


@pytest.mark.parametrize("behind", [0, 1, 3, 1200])
def test_the_axis_of_a_lag_counts_whole_offsets(behind: int) -> None:
    history = History(tuple(made.steady(1)))
    newest = {each.name: each.stands_at + behind for each in shard_lags(history)}
    figure = lag(history, newest, unit="bytes")
    figure.canvas.draw()
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert len(labels) > 1 and all(re.fullmatch(r"[\d.]+( k)?", label) for label in labels), labels
    assert "." not in "".join(labels) or behind > 999


def test_a_lag_that_nobody_knows_is_not_drawn_as_none() -> None:
    said = words(lag(History(tuple(made.steady(3))), why_unknown="broker-1 does not answer"))
    assert "cannot be told" in said
    assert "broker-1 does not answer" in said
    assert "Lag: none" not in said


def test_small_files_stand_out_target_by_target() -> None:
    entries = [
        made.committed(at, made.START_MS + at * 2500, file_bytes=size) for at, size in enumerate((5_000, 50_000_000))
    ]
    figure = sizes(History(tuple(entries)))
    said = words(figure)
    assert "1 of 2 small" in said
    assert "lake: 2 files, 50.0 MB" in said
    assert "small: below 10 MB" in said


def test_what_recovery_did_has_who_why_and_after_how_long() -> None:
    said = words(recovery(made.eventful()))
    assert "1 instant finished, 1 rolled back" in said
    assert f"finished by {made.RESCUER}" in said
    assert "recovered: prepared: every target is ready" in said
    assert f"rolled back by {made.RESCUER}" in said
    assert "not prepared" in said
    assert "3.1 s" in said
    assert "Nothing had to be recovered" in words(recovery(History(tuple(made.steady(3)))))


def test_texts_from_storage_are_drawn_as_they_are() -> None:
    said = words(recovery(hostile()))
    assert r"\$x^{" in said, "a formula would be drawn, or fail"
    assert "\x1b" not in said


def test_a_picture_shows_itself_in_a_notebook() -> None:
    shown, _ = DisplayFormatter().format(gantt(made.eventful()))  # type: ignore[no-untyped-call]
    assert shown["image/png"][:8] == b"\x89PNG\r\n\x1a\n"


def test_the_same_picture_has_the_same_bytes() -> None:
    assert rendered(gantt(made.eventful()), "png") == rendered(gantt(made.eventful()), "png")

    def without_ids(svg: bytes) -> bytes:
        # Ids are digests of positions on the page, whose last digits depend on earlier drawings.
        return re.sub(rb"\b[a-z][0-9a-f]{10}\b", b"id", svg)

    first, second = (without_ids(rendered(gantt(made.eventful()), "svg")) for _ in range(2))
    assert first == second


def test_drawing_changes_nothing_for_others() -> None:
    before = dict(matplotlib.rcParams)
    for draw in PICTURES.values():
        rendered(draw(made.eventful()), "svg")
    assert dict(matplotlib.rcParams) == before


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_pyplot_is_never_loaded() -> None:
    code = (
        "import sys; from ingest.reports.pictures import gantt, rendered\n"
        "from tests.unit.ingest.reports.made_histories import eventful\n"
        "rendered(gantt(eventful()), 'png'); print('matplotlib.pyplot' in sys.modules)"
    )
    assert python(code).strip() == "False"


@pytest.mark.parametrize("name", ["gantt", "throughput", "lag", "sizes", "recovery"])
def test_without_matplotlib_the_extra_is_named(name: str) -> None:
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from ingest.reports import pictures\nfrom tests.unit.ingest.reports.made_histories import eventful\n"
        f"try:\n    pictures.{name}(eventful())\n"
        "except Exception as error:\n    print(type(error).__name__, error)"
    )
    said = python(code)
    assert said.startswith("ConfigError")
    assert "tideline[look]" in said


def test_only_known_formats_are_written() -> None:
    from pathlib import Path

    assert format_of(Path("a.PNG")) == "png"
    for name in ("a.jpg", "a", "png"):
        with pytest.raises(ConfigError, match=r"\.png or \.svg"):
            format_of(Path(name))
