"""A table's rows, goals and page: what was measured is what people read."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pytest

from bench import guarantee, pages
from bench.goals import Goal, Key, medians, ratio
from bench.logs import lines
from bench.table import OURS, RESULTS, Measured, Row, figure, load, load_conditions, save, show

SPEED = (
    Measured("files", OURS, "rows/s", (300.0, 100.0, 200.0)),
    Measured("files", "Peer", "rows/s", (50.0, 40.0, 60.0)),
)


def test_a_row_has_the_median_and_the_extremes_of_its_rounds(tmp_path: Path) -> None:
    path = save("speed", SPEED, folder=tmp_path)
    ours = {"table": "speed", "work": "files", "system": OURS, "metric": "rows/s"}
    assert json.loads(path.read_text())[0] == ours | {"median": 200.0, "low": 100.0, "high": 300.0, "n": 3}


def test_a_run_of_one_work_keeps_the_rows_of_the_others(tmp_path: Path) -> None:
    save("speed", SPEED, conditions={"machine": "first"}, folder=tmp_path)
    save("speed", [Measured("kafka", OURS, "rows/s", (7.0,))], conditions={"machine": "second"}, folder=tmp_path)
    assert {(row.work, row.system) for row in load("speed", folder=tmp_path)} == {
        ("files", OURS),
        ("files", "Peer"),
        ("kafka", OURS),
    }
    conditions = load_conditions(folder=tmp_path)["speed"]
    assert (conditions["files"]["machine"], conditions["kafka"]["machine"]) == ("first", "second")


def test_a_work_measured_again_replaces_all_its_rows(tmp_path: Path) -> None:
    save("speed", SPEED, folder=tmp_path)
    save("speed", [Measured("files", OURS, "s", (7.0,))], folder=tmp_path)
    assert [(row.system, row.metric) for row in load("speed", folder=tmp_path)] == [(OURS, "s")]


def test_systems_are_shown_beside_ours_with_their_ratio() -> None:
    out = StringIO()
    show("speed", SPEED, out)
    peer = next(line for line in out.getvalue().splitlines() if "Peer" in line)
    assert peer.split() == ["Peer", "50.0", "40.0", "60.0", "3", "0.25"]


def test_where_only_ours_is_measured_its_works_are_below_each_other() -> None:
    out = StringIO()
    show("growth", [Measured(work, OURS, "ms", (1.0,)) for work in ("epoch 10", "epoch 1,000")], out)
    lines = out.getvalue().splitlines()
    assert lines[0] == "growth: ms"
    assert [line.split("  ")[1] for line in lines[2:]] == ["epoch 10", "epoch 1,000"]


@pytest.mark.parametrize(
    ("value", "text"), [(1234567.8, "1,234,568"), (42.42, "42.4"), (1.234, "1.23"), (0.01234, "0.0123"), (0.0, "0")]
)
def test_a_figure_keeps_three_digits(value: float, text: str) -> None:
    assert figure(value) == text


def test_a_goal_is_computed_and_one_without_its_figures_is_not_measured() -> None:
    rows = [Row.of("speed", each) for each in SPEED]
    ours, peer = (Key("speed", "files", system, "rows/s") for system in (OURS, "Peer"))
    goals = [
        Goal("faster", ratio(ours, peer), 3.0, True),
        Goal("not slower", ratio(ours, peer), 3.0, False),
        Goal("elsewhere", ratio(ours, Key("speed", "kafka", OURS, "rows/s")), 1.0, True),
    ]
    assert goals[0].value_of(medians(rows)) == 4.0
    met = [line.split("|")[-2].strip() for line in pages.goals_section(medians(rows), goals).splitlines()[2:]]
    assert met == ["yes", "**no**", "not measured"]


def test_every_goal_of_the_scripts_is_on_the_page() -> None:
    texts = [goal.text for goal in pages.goals_of_tables()]
    assert len(texts) == len(set(texts)) > 10
    assert all(text in pages.goals_section({}) for text in texts)


def test_every_goal_of_the_scripts_was_measured() -> None:
    found = medians(row for table in pages.TABLES for row in load(table, folder=RESULTS))
    assert [goal.text for goal in pages.goals_of_tables() if goal.value_of(found) is None] == []


def test_the_price_of_a_round_is_told_by_the_round_beside_it() -> None:
    """Where the machine was three times as slow for a while, medians of all rounds tell nothing."""
    work = "8 MB an epoch"
    measured = [
        Measured(work, system, metric, values)
        for metric in (guarantee.WALL, guarantee.CPU)
        for system, values in ((OURS, (11.0, 33.0, 12.0)), (guarantee.BARE, (10.0, 30.0, 10.0)))
    ]
    for each in guarantee.beside(measured):
        assert (each.work, each.system) == (work, OURS)
        assert each.values == pytest.approx((1.1, 1.1, 1.2))
    keys = {Key("guarantee", work, OURS, each.metric) for each in guarantee.beside(measured)}
    assert len(keys) == 2
    found = medians([Row.of("guarantee", each) for each in guarantee.beside(measured)])
    assert [goal.value_of(found) for goal in guarantee.GOALS if work in goal.text] == pytest.approx([1.1, 1.1])


def test_what_people_wrote_on_the_page_stays_and_its_tables_are_new(tmp_path: Path) -> None:
    page = tmp_path / "docs" / "benchmarks.md"
    save("throughput", [Measured("files", OURS, "rows/s", (1111.0,))], folder=tmp_path)
    pages.write(page, tmp_path)
    page.write_text(page.read_text().replace("## Growth\n", "## Growth\nIt is flat.\n"))
    save("throughput", [Measured("files", OURS, "rows/s", (2222.0,))], folder=tmp_path)
    pages.write(page, tmp_path)
    text = page.read_text()
    assert "It is flat." in text
    assert "2,222" in text
    assert "1,111" not in text
    assert text.count("## Growth") == 1


def test_a_page_written_twice_from_the_same_results_is_the_same(tmp_path: Path) -> None:
    page = tmp_path / "benchmarks.md"
    save("throughput", SPEED, folder=tmp_path)
    pages.write(page, tmp_path)
    first = page.read_text()
    pages.write(page, tmp_path)
    assert page.read_text() == first


def test_the_generated_log_is_the_same_each_time_and_has_nulls_and_fields_left_out() -> None:
    log = list(lines(2_000, seed=3))
    assert log == list(lines(2_000, seed=3))
    assert log != list(lines(2_000, seed=4))
    rows = [json.loads(line) for line in log]
    assert {"user" in row for row in rows} == {True, False}
    assert {row["referer"] is None for row in rows} == {True, False}
    assert 290 < sum(map(len, log)) / len(log) < 340
