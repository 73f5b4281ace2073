"""Rules for a job's query: it must turn each row, by itself, into one row or none.

The bounds of an epoch are arbitrary, so the result must not depend on them; and the same records must
always give the same rows. Pure: from Spark's plans, as trees, to the reasons to refuse them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

ROW_BY_ROW = frozenset(
    {"Project", "Filter", "SubqueryAlias", "View", "WithCTE", "CTERelationDef", "CTERelationRef", "PipeOperator"}
)
"""Operators of Spark's analyzed plans that treat each row by itself, or only name their input."""

SOURCE = "LogicalRDD"
"""The operator of the decoded rows: the only relation that a query may read."""

_OPERATORS: Mapping[str, str] = {
    "Aggregate": "GROUP BY or an aggregate function",
    "Deduplicate": "DISTINCT",
    "Distinct": "DISTINCT",
    "Except": "EXCEPT",
    "Expand": "GROUPING SETS, CUBE, ROLLUP or UNPIVOT",
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
    "ResolvedHint": "a hint",
    "Sample": "TABLESAMPLE",
    "ScriptTransformation": "TRANSFORM ... USING",
    "Sort": "ORDER BY or SORT BY",
    "Tail": "LIMIT",
    "Union": "UNION",
    "Window": "a window function (OVER)",
}
_OF_THE_QUERY = frozenset({"LocalTimestamp", "Now", "SparkVersion"})
"""Expressions that Spark fixes for one query, besides all `Current...`: the time, the user, the zone."""

_MOVES = (
    "the same record would give another row the next time (for the time of ingestion select _epoch, with lineage: true)"
)


@dataclass(frozen=True)
class Expression:
    """One expression of a plan.

    Attributes:
        kind: its class in Spark.
        name: its name in SQL.
        is_deterministic: whether the same row always gives the same value, as Spark reports it.
        children: its subexpressions.
        has_query: whether it contains a plan.
        moves: text or SQL of a date or timestamp whose value differs each time; "" for any other.
    """

    kind: str
    name: str
    is_deterministic: bool = True
    children: tuple[Expression, ...] = ()
    has_query: bool = False
    moves: str = ""

    def walk(self) -> Iterator[Expression]:
        """This expression and all its subexpressions."""
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass(frozen=True)
class Operator:
    """One operator of a plan.

    Attributes:
        kind: its class in Spark.
        expressions: the expressions that it computes.
        children: the operators that its rows come from.
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
    """Reasons to refuse a query as a job's; empty where it is allowed."""
    found: dict[str, None] = {}
    for operator in plan.walk():
        is_known = operator.kind in ROW_BY_ROW or operator.kind == SOURCE
        if not is_known and not operator.children:
            found["it reads something else than source"] = None
        elif not is_known:
            words = _OPERATORS.get(operator.kind, operator.kind)
            found[f"{words}: where an epoch ends is chance, and the result would depend on it"] = None
    return [*found, *nondeterministic(plan)]


def nondeterministic(plan: Operator) -> list[str]:
    """Reasons to refuse expressions whose values do not follow from the row."""
    reasons = (reason for operator in plan.walk() for each in operator.expressions for reason in _of_expression(each))
    return list(dict.fromkeys(reasons))


def column_names(plan: Operator) -> frozenset[str]:
    """Names that an analyzed plan gives to columns, in lower case."""
    every = (part for operator in plan.walk() for expression in operator.expressions for part in expression.walk())
    return frozenset(part.name.lower() for part in every if part.kind == "Alias")


def leaves_out(plan: Operator) -> bool:
    """Whether the result may have fewer rows than the source."""
    return any(operator.kind == "Filter" for operator in plan.walk())


def _is_by_chance(expression: Expression) -> bool:
    """Whether this expression itself, and not a subexpression, may give another value for the same row."""
    if expression.kind in _OF_THE_QUERY or (expression.kind.startswith("Current") and expression.kind != "CurrentRow$"):
        return True
    return not expression.is_deterministic and all(child.is_deterministic for child in expression.children)


def _of_expression(expression: Expression) -> Iterator[str]:
    if expression.has_query:
        yield "a query inside of an expression: where an epoch ends is chance, and the result would depend on it"
    elif _is_by_chance(expression):
        yield f"{expression.name}: the same record would give another row the next time"
    elif expression.moves:  # perhaps by an implicit cast: `at < 'now'`
        yield f"{expression.moves}: {_MOVES}"
    else:
        for child in expression.children:
            yield from _of_expression(child)
