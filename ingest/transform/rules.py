"""Which queries a job may have: those that make of each row, by itself, one row or none.

Where an epoch begins and ends is chance, so the result must not depend on it; and the same records must
always give the same rows. Pure: Spark's analyzed plan goes in as a tree, the reasons to refuse it come out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

ROW_BY_ROW = frozenset(
    {"Project", "Filter", "SubqueryAlias", "View", "WithCTE", "CTERelationDef", "CTERelationRef", "PipeOperator"}
)
"""Operators of Spark's analyzed plans that treat each row by itself, or only name what is below them."""

SOURCE = "LogicalRDD"
"""The operator that stands for the decoded rows: the only thing that a query may read."""

_OPERATORS: Mapping[str, str] = {
    "Aggregate": "GROUP BY or an aggregate function",
    "Deduplicate": "DISTINCT",
    "Distinct": "DISTINCT",
    "Except": "EXCEPT",
    "Expand": "GROUPING SETS, CUBE or ROLLUP",
    "Generate": "explode, or another function that makes several rows of one",
    "GlobalLimit": "LIMIT",
    "Intersect": "INTERSECT",
    "Join": "JOIN",
    "LateralJoin": "JOIN",
    "LocalLimit": "LIMIT",
    "Offset": "OFFSET",
    "Repartition": "a hint that moves rows",
    "RepartitionByExpression": "a hint that moves rows, DISTRIBUTE BY or CLUSTER BY",
    "RebalancePartitions": "a hint that moves rows",
    "Sample": "TABLESAMPLE",
    "Sort": "ORDER BY or SORT BY",
    "Tail": "LIMIT",
    "Union": "UNION",
    "Window": "a window function (OVER)",
}
_SUBQUERIES = frozenset(
    {"DynamicPruningSubquery", "Exists", "InSubquery", "LateralSubquery", "ListQuery", "ScalarSubquery"}
)
_BY_THE_CLOCK = frozenset({"LocalTimestamp", "Now"})
_CLOCK_WORD = re.compile(r"\s*(now|today|tomorrow|yesterday)\b", re.IGNORECASE)
"""Texts that Spark takes for a time that moves, where it makes a date or timestamp of them."""

_CLOCK_LITERAL = re.compile(rf"\b(?:date|timestamp(?:_ltz|_ntz)?)\s*r?['\"]{_CLOCK_WORD.pattern}", re.IGNORECASE)
"""Spark's parser puts the time of the query in place of ``timestamp'now'``: the plan has a constant."""


@dataclass(frozen=True)
class Expression:
    """One expression of a plan.

    Attributes:
        kind: its class in Spark.
        name: as a person writes it.
        is_deterministic: whether the same row gives the same value, as Spark sees it.
        children: what it is made of.
        time_of: of a date or timestamp that is made of a constant text: that text.
    """

    kind: str
    name: str
    is_deterministic: bool = True
    children: tuple[Expression, ...] = ()
    time_of: str = ""


@dataclass(frozen=True)
class Operator:
    """One operator of a plan.

    Attributes:
        kind: its class in Spark.
        expressions: what it computes.
        children: where its rows come from.
    """

    kind: str
    expressions: tuple[Expression, ...] = ()
    children: tuple[Operator, ...] = ()

    def walk(self) -> Iterator[Operator]:
        """This operator and all below it."""
        yield self
        for child in self.children:
            yield from child.walk()


def refusals(plan: Operator) -> list[str]:
    """Why a query cannot be a job's, in words; empty where it can."""
    found: dict[str, None] = {}
    for operator in plan.walk():
        is_known = operator.kind in ROW_BY_ROW or operator.kind == SOURCE
        if not is_known and not operator.children:
            found["it reads something else than source"] = None
        elif not is_known:
            words = _OPERATORS.get(operator.kind, operator.kind)
            found[f"{words}: where an epoch ends is chance, and the result would depend on it"] = None
        for expression in operator.expressions:
            found |= dict.fromkeys(_of_expression(expression))
    return list(found)


def clock_words(query: str) -> list[str]:
    """Why the text of a query cannot be a job's: dates and timestamps that mean another time each time."""
    return list(dict.fromkeys(_moves(found[1]) for found in _CLOCK_LITERAL.finditer(query)))


def leaves_out(plan: Operator) -> bool:
    """Whether the result may have fewer rows than the source."""
    return any(operator.kind == "Filter" for operator in plan.walk())


def _is_by_chance(expression: Expression) -> bool:
    """Whether this very expression, and not what it is made of, may give another value for the same row."""
    if expression.kind in _BY_THE_CLOCK or expression.kind.startswith("Current"):
        return True  # the time, the user, the catalog: Spark counts them as fixed, for one query
    return not expression.is_deterministic and all(child.is_deterministic for child in expression.children)


def _moves(word: str) -> str:
    return f"'{word.lower()}': the same record would give another row the next time"


def _of_expression(expression: Expression) -> Iterator[str]:
    if expression.kind in _SUBQUERIES:
        yield "a query inside of an expression: where an epoch ends is chance, and the result would depend on it"
    elif _is_by_chance(expression):
        yield f"{expression.name}: the same record would give another row the next time"
    elif found := _CLOCK_WORD.match(expression.time_of):
        yield _moves(found[1])  # maybe unasked: `at < 'now'` casts too
    else:
        for child in expression.children:
            yield from _of_expression(child)
