"""Texts that Spark takes for a time that moves: `now`, `today`, or a time of day without a date.

Whether a text is one is Spark's own answer, and so is where a query's literals are and what is in their quotes:
comments, escapes and functions over constants change how a query is written, and not what Spark makes of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIMES = frozenset({"date", "timestamp", "timestamp_ntz"})
"""Types that Spark makes of such texts."""


def moving_literal(session: SparkSession, literal: Any) -> str:
    """A literal of a parsed plan as the query has it, where its time moves; "" for any other.

    Spark's parser puts the time of the query in place of ``timestamp'now'``: the plan has a constant, and the
    place in the query that it came from.

    Args:
        session: the session that parsed it.
        literal: Spark's expression.
    """
    kind = str(literal.dataType().simpleString())
    if kind not in TIMES:
        return ""
    origin = literal.origin()
    written = str(origin.sqlText().get())[int(origin.startIndex().get()) : int(origin.stopIndex().get()) + 1]
    return " ".join(written.split()) if moves(session, _quoted_text(session, written), kind) else ""


def _quoted_text(session: SparkSession, written: str) -> str:
    """The text in the quotes of a literal with a type in front, as Spark's lexer and parser read it."""
    jvm = session._jvm
    assert jvm is not None
    characters = jvm.org.antlr.v4.runtime.CharStreams.fromString(written)
    parser = jvm.org.apache.spark.sql.catalyst.parser
    _, *quoted = [
        token.getText()
        for token in parser.SqlBaseLexer(parser.UpperCaseCharStream(characters)).getAllTokens()
        if token.getChannel() == 0  # comments and white space have another one
    ]
    return str(session._jsparkSession.sessionState().sqlParser().parseExpression(" ".join(quoted)).eval(None))


def moves(session: SparkSession, text: str, kind: str) -> bool:
    """Whether Spark makes of a text another time each time.

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
                return True  # '12:30' becomes half past twelve on the day of the query
    return bool(special.isDefined()) and int(special.get()) != 0  # 'epoch' is special too, and always 0
