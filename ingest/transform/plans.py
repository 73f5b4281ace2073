"""Spark's plans as trees for `ingest.transform.rules`; reads them through the JVM and runs nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Container
from typing import TYPE_CHECKING, Any

from ingest.transform.dated import DatedTexts
from ingest.transform.moving import moving_literal
from ingest.transform.nodes import each
from ingest.transform.rules import SOURCE, Expression, Operator

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class PlanReader:
    """Reads the plans of one query.

    A plan that was only parsed still has the positions of literals in the text, and the functions that the analyzer
    evaluates and removes (in ``IDENTIFIER(…)``, in the schema of ``from_json``).
    """

    def __init__(self, session: SparkSession, source: int) -> None:
        """Reads nothing yet.

        Args:
            session: the session that makes the plans.
            source: the id of the RDD behind the table ``source``.
        """
        jvm = session._jvm
        assert jvm is not None
        self._session = session
        self._source = source
        self._identifier = jvm.org.apache.spark.sql.catalyst.FunctionIdentifier
        # Base class of all expressions with a plan inside, also of those in later versions of Spark.
        self._query = jvm.java.lang.Class.forName("org.apache.spark.sql.catalyst.expressions.PlanExpression")
        self._functions: dict[str, str] = {}

    def parsed(self, plan: Any, columns: Container[str]) -> Operator:
        """The tree of a plan that was not analyzed.

        Args:
            plan: Spark's plan.
            columns: names of columns in lower case; any other name without brackets may be a function's.
        """
        below = [*each(plan.children()), *each(plan.innerChildren())]  # inner children: the queries of WITH
        return Operator(
            str(plan.getClass().getSimpleName()),
            tuple(self._parsed_expression(node, columns) for node in each(plan.expressions())),
            tuple(self.parsed(child, columns) for child in below),
        )

    def analyzed(self, plan: Any, texts: DatedTexts | None = None) -> Operator:
        """The tree of a plan that was analyzed.

        Args:
            plan: Spark's plan.
            texts: checks its conversions of texts to times; None: not checked.
        """
        kind = str(plan.getClass().getSimpleName())
        if kind == SOURCE and int(plan.rdd().id()) != self._source:
            kind = f"{SOURCE} of another table"
        return Operator(
            kind,
            tuple(self._expression(node, texts) for node in each(plan.expressions())),
            tuple(self.analyzed(child, texts) for child in each(plan.children())),
        )

    def _parsed_expression(self, node: Any, columns: Container[str]) -> Expression:
        kind, name = str(node.getClass().getSimpleName()), str(node.prettyName())
        if kind in ("UnresolvedFunction", "UnresolvedAttribute"):
            *qualifiers, name = (str(part).lower() for part in each(node.nameParts()))
            if kind == "UnresolvedFunction" or not (qualifiers or name in columns):
                kind = self._class_of(name) or kind
        return Expression(
            kind,
            name,
            children=tuple(self._parsed_expression(child, columns) for child in each(node.children())),
            moves=moving_literal(self._session, node) if kind == "Literal" else "",
        )

    def _expression(self, node: Any, texts: DatedTexts | None) -> Expression:
        kind = str(node.getClass().getSimpleName())
        return Expression(
            kind,
            str(node.name() if kind == "Alias" else node.prettyName()),
            is_deterministic=bool(node.deterministic()) and not (kind == "AesEncrypt" and _draws_its_iv(node)),
            children=tuple(self._expression(child, texts) for child in each(node.children())),
            has_query=bool(self._query.isInstance(node)),
            moves="" if texts is None else texts.moving(node),
        )

    def _class_of(self, function: str) -> str:
        """The class of the function with this name; "" where there is none."""
        if function not in self._functions:
            registry = self._session._jsparkSession.sessionState().functionRegistry()
            found = registry.lookupFunction(self._identifier(function))
            name = str(found.get().getClassName()) if found.isDefined() else ""
            self._functions[function] = name.rpartition(".")[2]
        return self._functions[function]


def _draws_its_iv(encrypted: Any) -> bool:
    """Whether `aes_encrypt` draws a random initialization vector for each row; Spark calls it deterministic anyway."""
    from py4j.protocol import Py4JJavaError

    mode, vector = encrypted.mode(), encrypted.iv()
    with contextlib.suppress(Py4JJavaError):  # Spark replaces some functions before it evaluates them
        if mode.foldable() and str(mode.eval(None)).upper() == "ECB":
            return False  # the only mode without a vector
        return bool(vector.foldable() and not vector.eval(None))
    return True
