"""Writes the tables of docs/benchmarks.md from bench/results; the text around them stays.

    python -m bench.pages [--results DIR] [--page FILE]

::

    ## Throughput
    prose                              stays
    <!-- throughput: written by bench.pages -->
    …                                  replaced
    <!-- end -->

A missing page is created with all its headings.
"""

from __future__ import annotations

import argparse
import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from bench import projection
from bench.goals import Goal, Medians, medians
from bench.table import OURS, RESULTS, Row, figure, load, load_conditions
from bench.tuning import ALL

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"

TABLES: Mapping[str, str] = {
    "throughput": "Throughput, JSON logs to table",
    "guarantee": "Price of the guarantee",
    "fixed_cost": "Fixed cost of an epoch",
    "growth": "Growth",
    "growth_sizes": "Cores, partitions, files",
    "growth_startup": "Start-up as the timeline grows",
    "recovery": "Recovery",
    "cluster": "The driver of a cluster, simulated",
    "tried": "Other ways to read and to write",
}
"""Table → its heading. The script of each is ``bench.<table>``, and may hold its ``GOALS``."""

Conditions = Mapping[str, Mapping[str, Mapping[str, str]]]

_INTRO = """# Benchmarks

`make bench` measures all of it and writes the tables of this page; each script runs alone too (`python -m
bench.<table> --quick` takes minutes). Systems take turns in one run, round by round, each in a process of its own
with a session of its own (the three ways of Hudi share one, and so do both sides of the guarantee's price: their peak
memory is that of both), the others idle meanwhile; what each one wrote is counted and deleted after every round. A
figure is the median of the rounds, with the smallest and the largest one. CPU seconds and memory are those of the
whole process tree: driver, JVM, Python workers, those that have ended too. Memory is PSS at its peak, looked at four
times a second; of single commands it is the largest resident set, of a growing table and a cluster's driver the
resident set of that process. Servers (Kafka's broker, S3's) share the two cores with everyone, and are counted for
nobody.
"""
_NOTHING = "-"
_TO = "\N{EN DASH}"


def write(page: Path, folder: Path) -> None:
    """Bring the tables of a page up to date.

    Args:
        page: the page; created with all headings if missing.
        folder: folder of the results.
    """
    rows = {table: load(table, folder=folder) for table in TABLES}
    conditions = load_conditions(folder=folder)
    found = medians([row for each in rows.values() for row in each])
    sections = [("goals", "Goals", goals_section(found))]
    sections += [
        (table, heading, table_section(rows[table], conditions.get(table, {}))) for table, heading in TABLES.items()
    ]
    sections.append(("projection", "Projection to a cluster", projection_section(found)))
    sections.append(("conditions", "Under what it was measured", conditions_section(conditions)))
    sections.append(("tuning", "How each system is set up", tuning_section()))
    text = page.read_text() if page.exists() else _INTRO
    for name, heading, content in sections:
        text = _with_section(text, name, heading, content)
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(text)


def goals_of_tables() -> list[Goal]:
    """Goals of all tables' scripts."""
    found: list[Goal] = []
    for table in TABLES:
        found += getattr(importlib.import_module(f"bench.{table}"), "GOALS", ())
    return found


def goals_section(found: Medians, goals: Sequence[Goal] | None = None) -> str:
    """Each goal, and whether it is met."""
    lines = []
    for goal in goals_of_tables() if goals is None else goals:
        value = goal.value_of(found)
        aim = f"{'at least' if goal.is_at_least else 'at most'} {goal.limit:.3g}"
        met = "not measured" if value is None else "yes" if goal.is_met(value) else "**no**"
        lines.append((goal.text, aim, _NOTHING if value is None else f"{value:.3g}", met))
    return _markdown(("what", "goal", "measured", "met"), lines)


def table_section(rows: Sequence[Row], conditions: Mapping[str, Mapping[str, str]]) -> str:
    """A table's figures: systems side by side for each work; works of a single system below each other."""
    if not rows:
        return "Not measured yet."
    works: dict[str, list[Row]] = {}
    for row in rows:
        works.setdefault(row.work, []).append(row)
    alone = [row for each in works.values() if len({row.system for row in each}) == 1 for row in each]
    parts = []
    for work, each in works.items():
        if len({row.system for row in each}) > 1:
            parts.append(f"**{work}**{_sizes(conditions.get(work))}\n\n{_compared(each)}")
    if alone:
        sizes = {_sizes(conditions.get(row.work)) for row in alone}
        lines = _lines(alone, lambda row: row.work)
        parts.append(f"{sizes.pop().removeprefix(': ')}\n\n{lines}".strip() if len(sizes) == 1 else lines)
    return "\n\n".join(parts)


def projection_section(found: Medians) -> str:
    """Needs of streams of a cluster's size, each stream in a column."""
    lines = projection.table(found)
    return _markdown(("", *map(str, projection.STREAMS)), lines) if lines else "Not measured yet."


def conditions_section(conditions: Conditions) -> str:
    """Machine, versions and commands."""
    lines: list[str] = []
    for what in ("machine", "versions"):
        told = dict.fromkeys(each[what] for works in conditions.values() for each in works.values() if what in each)
        lines += [f"- {what}: {each}" for each in told]
    commands = dict.fromkeys(
        (f"`{each['command']}`", each.get("rounds", ""), each.get("commit", ""))
        for works in conditions.values()
        for each in works.values()
    )
    lines += [f"- {command}{f' of {commit}' if commit else ''}: {rounds}" for command, rounds, commit in commands]
    return "\n".join(lines) or "Not measured yet."


def tuning_section() -> str:
    """Settings of each system, each with the page that documents it."""
    lines = []
    for peer, settings in ALL.items():
        for setting in settings:
            what = f"`{setting.key}` = `{setting.value}`" if setting.key else _NOTHING
            lines.append((peer, what, setting.why, f"[page]({setting.source})"))
    return _markdown(("who", "setting", "why", "source"), lines)


def _compared(rows: Sequence[Row]) -> str:
    first = rows[0].metric
    ours = next((row.median for row in rows if row.system == OURS and row.metric == first), None)
    ratios = {row.system: f"{row.median / ours:.2f}" for row in rows if row.metric == first and ours}
    return _lines(rows, lambda row: row.system, (f"{first}, as a multiple of {OURS}'s", ratios))


def _lines(rows: Sequence[Row], name: Callable[[Row], str], extra: tuple[str, Mapping[str, str]] | None = None) -> str:
    """One line for each name, one column for each metric, in the order in which they come."""
    metrics = list(dict.fromkeys(row.metric for row in rows))
    cells = {(name(row), row.metric): _cell(row) for row in rows}
    lines = []
    for each in dict.fromkeys(name(row) for row in rows):
        values = [cells.get((each, metric), _NOTHING) for metric in metrics]
        if extra is not None:
            values.insert(1, extra[1].get(each, _NOTHING))
        lines.append((f"**{each}**" if each == OURS else each, *values))
    head = [metrics[0], *([extra[0]] if extra else []), *metrics[1:]]
    return _markdown(("", *head), lines)


def _cell(row: Row) -> str:
    return figure(row.median) + (f" ({figure(row.low)}{_TO}{figure(row.high)})" if row.low != row.high else "")


def _sizes(conditions: Mapping[str, str] | None) -> str:
    sizes = (conditions or {}).get("sizes", "")
    return f": {sizes}" if sizes else ""


def _markdown(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)


def _with_section(text: str, name: str, heading: str, content: str) -> str:
    begin, end = f"<!-- {name}: written by bench.pages -->", "<!-- end -->"
    section = f"{begin}\n\n{content}\n\n{end}"
    found = re.search(re.escape(begin) + ".*?" + re.escape(end), text, re.DOTALL)
    if found is not None:
        return text[: found.start()] + section + text[found.end() :]
    return f"{text.rstrip()}\n\n## {heading}\n{section}\n"


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--page", type=Path, default=PAGE)
    options = parser.parse_args()
    write(options.page, options.results)
    print(options.page)


if __name__ == "__main__":
    main()
