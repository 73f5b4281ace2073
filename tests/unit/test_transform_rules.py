"""Which queries a job may have, on plans as Spark analyzes them."""

from __future__ import annotations

import pytest

from ingest.transform.rules import SOURCE, Expression, Operator, clock_words, leaves_out, refusals

READ = Operator("View", children=(Operator(SOURCE),))


def over(*kinds: str, below: Operator = READ) -> Operator:
    for kind in reversed(kinds):
        below = Operator(kind, children=(below,))
    return below


def test_projections_and_filters_are_taken() -> None:
    assert refusals(over("Project", "Filter", "SubqueryAlias", "Project")) == []


def test_named_subqueries_are_taken_if_what_they_name_is() -> None:
    named = Operator("CTERelationDef", children=(over("Filter"),))
    assert refusals(Operator("WithCTE", children=(named, over("Project", below=Operator("CTERelationRef"))))) == []
    counted = Operator("CTERelationDef", children=(over("Aggregate"),))
    assert refusals(Operator("WithCTE", children=(counted, over("Project", below=Operator("CTERelationRef")))))


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        ("Aggregate", "GROUP BY"),
        ("Sort", "ORDER BY"),
        ("GlobalLimit", "LIMIT"),
        ("Generate", "explode"),
        ("New", "New"),
    ],
)
def test_what_depends_on_other_rows_is_refused_by_its_name(kind: str, word: str) -> None:
    (reason,) = refusals(over("Project", kind, "Filter"))
    assert word in reason


def test_two_sources_are_refused() -> None:
    assert "JOIN" in refusals(Operator("Join", children=(READ, READ)))[0]


@pytest.mark.parametrize("kind", ["OneRowRelation", "LocalRelation", "LogicalRelation", "Range", "UnheardOf"])
def test_rows_of_anything_but_the_source_are_refused(kind: str) -> None:
    assert refusals(over("Project", below=Operator(kind))) == ["it reads something else than source"]


def test_a_value_that_a_replay_would_not_repeat_is_refused_by_the_function_that_makes_it() -> None:
    rand = Expression("Rand", "rand", is_deterministic=False)
    plus = Expression("Add", "+", is_deterministic=False, children=(Expression("Literal", "1"), rand))
    (reason,) = refusals(Operator("Project", (plus,), (READ,)))
    assert reason.startswith("rand:")


@pytest.mark.parametrize("kind", ["CurrentTimestamp", "Now", "LocalTimestamp", "CurrentUser"])
def test_the_clock_and_the_user_are_refused_though_spark_calls_them_fixed(kind: str) -> None:
    inside = Expression("Cast", "cast", children=(Expression(kind, kind.lower()),))
    assert refusals(Operator("Filter", (inside,), (READ,)))[0].startswith(kind.lower())


def test_a_query_inside_of_an_expression_is_refused() -> None:
    inside = Expression("In", "in", children=(Expression("ListQuery", "listquery"),))
    assert "inside of an expression" in refusals(Operator("Filter", (inside,), (READ,)))[0]


def test_only_a_filter_leaves_rows_out() -> None:
    assert leaves_out(over("Project", "Filter"))
    assert not leaves_out(over("Project", "SubqueryAlias"))


def test_words_that_mean_another_time_each_time_are_refused() -> None:
    query = "SELECT Timestamp'now' AS a, date 'Yesterday' AS b, TIMESTAMP_NTZ r\" now \" AS c FROM source"
    assert [reason.partition(":")[0] for reason in clock_words(query)] == ["'now'", "'yesterday'"]
    assert clock_words("SELECT 'now' AS a, timestamp'2020-01-01' AS b FROM source WHERE day = 'today'") == []


def test_times_that_are_made_of_such_words_are_refused() -> None:
    def refused(text: str) -> list[str]:
        made = Expression("LessThan", "<", children=(Expression("Cast", "cast", time_of=text),))
        return refusals(Operator("Filter", (made,), (READ,)))

    for word in ("now", " Today", "tomorrow UTC", "YESTERDAY"):
        assert refused(word) == [f"'{word.split()[0].lower()}': the same record would give another row the next time"]
    for word in ("2020-01-01", "nowhere", "epoch", ""):
        assert refused(word) == []
