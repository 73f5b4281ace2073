"""Texts that Spark converts to a moving time: `now`, `today`, or a time of day without a date.

Spark's own code decides whether a text is one, where a query's literals are, and what text their quotes hold:
comments, escapes and functions over constants change a query's text, but not Spark's reading of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIMES = frozenset({"date", "timestamp", "timestamp_ntz"})
"""Spark types of moving times."""


def moving_literal(session: SparkSession, literal: Any) -> str:
    """The query's text of a literal of a parsed plan, where its time moves; "" for any other literal.

    Spark's parser replaces ``timestamp'now'`` by the time of the query: the plan has a constant, with its position
    in the query.

    Args:
        session: the session that parsed the plan.
        literal: Spark's expression.
    """
    kind = str(literal.dataType().simpleString())
    if kind not in TIMES:
        return ""
    origin = literal.origin()
    written = str(origin.sqlText().get())[int(origin.startIndex().get()) : int(origin.stopIndex().get()) + 1]
    return " ".join(written.split()) if moves(session, _quoted_text(session, written), kind) else ""


def _quoted_text(session: SparkSession, written: str) -> str:
    """The quoted text of a typed literal (``date'…'``), as Spark's lexer and parser read it."""
    jvm = session._jvm
    assert jvm is not None
    characters = jvm.org.antlr.v4.runtime.CharStreams.fromString(written)
    parser = jvm.org.apache.spark.sql.catalyst.parser
    _, *quoted = [
        token.getText()
        for token in parser.SqlBaseLexer(parser.UpperCaseCharStream(characters)).getAllTokens()
        if token.getChannel() == 0  # comments and white space have another channel
    ]
    return str(session._jsparkSession.sessionState().sqlParser().parseExpression(" ".join(quoted)).eval(None))


def moves(session: SparkSession, text: str, kind: str) -> bool:
    """Whether Spark converts a text to a time that depends on when it runs.

    Args:
        session: any session.
        text: a constant.
        kind: one of TIMES.
    """
    jvm = session._jvm
    assert jvm is not None
    spark, zone = jvm.org.apache.spark.sql.catalyst.util.DateTimeUtils, jvm.java.time.ZoneOffset.UTC
    match kind:
        case "date":
            special = spark.convertSpecialDate(text, zone)
        case "timestamp_ntz":
            special = spark.convertSpecialTimestampNTZ(text, zone)
        case _:
            special = spark.convertSpecialTimestamp(text, zone)
            if spark.parseTimestampString(jvm.org.apache.spark.unsafe.types.UTF8String.fromString(text))._3():
                return True  # '12:30' becomes 12:30 on the day of the query
    return bool(special.isDefined()) and int(special.get()) != 0  # 'epoch' is special too, but always 0
