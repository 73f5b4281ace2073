"""Queries that a job may have, checked on plans as Spark analyzes them."""

from __future__ import annotations

import pytest

from ingest.transform.rules import SOURCE, Expression, Operator, column_names, leaves_out, nondeterministic, refusals

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


@pytest.mark.parametrize("kind", ["CurrentTimestamp", "Now", "LocalTimestamp", "CurrentUser", "SparkVersion"])
def test_the_clock_the_user_and_the_version_are_refused_though_spark_calls_them_fixed(kind: str) -> None:
    inside = Expression("Cast", "cast", children=(Expression(kind, kind.lower()),))
    assert refusals(Operator("Filter", (inside,), (READ,)))[0].startswith(kind.lower())


def test_a_query_inside_of_an_expression_is_refused() -> None:
    inside = Expression("In", "in", children=(Expression("OfALaterSpark", "query", has_query=True),))
    assert "inside of an expression" in refusals(Operator("Filter", (inside,), (READ,)))[0]


def test_only_a_filter_leaves_rows_out() -> None:
    assert leaves_out(over("Project", "Filter"))
    assert not leaves_out(over("Project", "SubqueryAlias"))


def test_a_time_that_moves_is_refused_as_the_query_has_it() -> None:
    made = Expression("LessThan", "<", children=(Expression("Cast", "cast", moves="'today'"),))
    (reason,) = refusals(Operator("Filter", (made,), (READ,)))
    assert reason.startswith("'today': the same record would give another row the next time (for the time of ingestion")


def test_what_the_analyzer_takes_out_is_found_in_the_parsed_query() -> None:
    named = Expression("ExpressionWithUnresolvedIdentifier", "identifier", children=(Expression("Now", "now"),))
    with_names = Operator("UnresolvedWith", children=(READ, Operator("Project", (named,), (READ,))))
    assert nondeterministic(with_names) == ["now: the same record would give another row the next time"]
    # A parsed plan has operators that no analyzed plan has: they are not judged.
    assert nondeterministic(Operator("Aggregate", (Expression("Literal", "literal"),), (READ,))) == []


def test_the_bound_of_a_window_is_not_taken_for_the_clock() -> None:
    (reason,) = refusals(Operator("Window", (Expression("CurrentRow$", "currentrow$"),), (READ,)))
    assert "OVER" in reason


def test_the_names_that_a_query_gives_to_columns_are_known_at_every_depth() -> None:
    inner = Operator("Project", (Expression("Alias", "User", children=(Expression("Literal", "literal"),)),), (READ,))
    nested = Expression("CreateNamedStruct", "named_struct", children=(Expression("Alias", "b"),))
    assert column_names(Operator("Project", (nested,), (inner,))) == {"user", "b"}
