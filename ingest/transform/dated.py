"""Checks conversions of texts to times in a query, and the sources of the texts: each constant text needs a date.

::

    CAST(array('12:30') AS array<timestamp>)         a constant is evaluated
    CAST(if(id > 0, '12:30', host) AS timestamp)     each branch by itself; `host` is the row's, and is not checked
    CAST(concat(id, ':30') AS timestamp)             no text of the row: evaluated with samples for `id`
    CAST(t.a AS timestamp) FROM (SELECT '12:30' AS a …) t, transform(array('12:30'), t -> CAST(t AS timestamp))
                                                     names are resolved to their expressions
    from_json('{"a": "12:30"}', 'a timestamp')       each part of a constant document

Works on an analyzed plan after ``ReplaceExpressions``.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ingest.transform.moving import TIMES, moves
from ingest.transform.nodes import each, errors_of_spark, kind_of
from ingest.transform.samples import Samples

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NAMES = frozenset({"AttributeReference", "CommonExpressionRef", "NamedLambdaVariable"})
_FIRST = frozenset({"Alias", "Collate", "ElementAt", "GetArrayItem", "GetMapValue", "LambdaFunction", "With"})
"""Expressions whose value is their first child, or part of it."""

_BRANCHES = frozenset({"CaseWhen", "Coalesce", "Greatest", "If", "Least"})
_PIECES = frozenset({"RegExpExtract", "StringLPad", "StringRPad", "StringRepeat", "Substring", "SubstringIndex"})
"""Expressions that cut a piece of their first child, or pad or repeat it, as the other children say."""

_PARSERS = frozenset({"CsvToStructs", "JsonToStructs", "XmlToStructs"})
_PLAIN_OPTIONS = frozenset({"dateformat", "locale", "mode", "timestampntzformat", "timezone"})
"""Options of parsers that do not change the syntax of documents."""

_BETWEEN_VALUES = re.compile(r"""["'<>,\[\]{}\n]""")
_ESCAPES = re.compile(r"[\\&]")
_MOST_VARIANTS = 64
_LONGEST_NAME = 120


@dataclass(frozen=True)
class _Text:
    """A text that a query converts.

    Attributes:
        text: the text; None where it is unknown.
        is_sample: whether samples stand in for a row's values.
    """

    text: str | None
    is_sample: bool = False


class _TooManyError(Exception):
    """An expression has more variants than are checked."""


class DatedTexts:
    """Checks the conversions of one plan."""

    def __init__(self, session: SparkSession, plan: Any) -> None:
        """Reads nothing yet.

        Args:
            session: the session that made the plan.
            plan: an analyzed plan, after ``ReplaceExpressions``.
        """
        self._session = session
        self._plan = plan
        self._samples = Samples(session)
        self._known: dict[str, list[Any]] | None = None

    def moving(self, node: Any) -> str:
        """The quoted text that an expression converts to a moving time, or the SQL of an unknown text; "" if none.

        Args:
            node: one of the plan's expressions.
        """
        kind = kind_of(node)
        if kind in _PARSERS:
            return self._parsed(node, kind)
        if kind not in ("Cast", "VariantGet"):
            return ""
        child = node.children().apply(0)
        times = _converted(child.dataType(), node.dataType())
        for found in self._texts(child) if times else ():
            if found.text is None:
                return _unknown(node)
            if any(moves(self._session, found.text, time) for time in times):
                return f"'{found.text.strip().lower()}'"
        return ""

    def _parsed(self, node: Any, kind: str) -> str:
        """As `moving`, for a parser of documents."""
        schema = node.dataType()
        if "timestamp" not in _times(schema) and not (kind == "CsvToStructs" and _has(schema, ("variant",))):
            return ""
        options = {str(option._1()).lower(): str(option._2()) for option in each(node.options().toSeq())}
        if "timestampformat" in options and options.get("enabledatetimeparsingfallback", "").lower() != "true":
            return ""
        for found in self._texts(node.children().apply(0)):
            is_plain = options.keys() <= _PLAIN_OPTIONS and not _ESCAPES.search(found.text or "")
            if found.text is None or not (is_plain or found.is_sample):
                return _unknown(node)
            for part in _BETWEEN_VALUES.split(found.text):
                if moves(self._session, part, "timestamp"):
                    return f"'{part.strip().lower()}'"
        return ""

    def _texts(self, node: Any, seen: frozenset[str] = frozenset()) -> Iterator[_Text]:
        """Texts in an expression's value, except those of the row."""
        if not _has(node.dataType(), ("string", "variant")):
            return
        kind = kind_of(node)
        if node.foldable():
            yield from map(_Text, _strings_of(node))
        elif kind in _NAMES:
            name = _name(node)
            for source in () if name in seen else self._sources(name):
                yield from self._texts(source, seen | {name})
        elif (parts := self._parts(node, kind)) is not None:
            for part in parts:
                yield from self._texts(part, seen)
        else:
            yield from self._computed(node)

    def _parts(self, node: Any, kind: str) -> Sequence[Any] | None:
        """Children of an expression that are its value, or part of it; None where it computes a new text."""
        children = each(node.children())
        if kind in _BRANCHES:
            return _branches(children, kind)
        if kind in _FIRST:
            return children[:1]
        if kind == "Elt":
            return children[1:]
        if kind == "CreateNamedStruct":
            return children[1::2]
        if kind == "GetStructField":
            struct = self._followed(children[0])
            made = each(struct.children())[1::2] if kind_of(struct) == "CreateNamedStruct" else []
            return [made[int(node.ordinal())]] if made else children
        if kind == "Cast":
            return children if _has(children[0].dataType(), ("string", "variant")) else None
        is_one_text = _has(node.dataType(), ("string", "variant"), is_deep=False)
        return None if is_one_text and not any(kind_of(child) == "LambdaFunction" for child in children) else children

    def _computed(self, node: Any) -> Iterator[_Text]:
        """Texts that an expression computes from constants, and from values of a row that are not texts."""
        try:
            variants = self._variants(node, frozenset())
        except _TooManyError:
            yield _Text(None)
            return
        for variant in variants:
            rows = _unbound(variant, frozenset())
            if kind_of(variant) in _PIECES and rows and not _unbound(variant.children().apply(0), frozenset()):
                yield _Text(None)
            elif not any(_has(row.dataType(), ("string", "variant", "binary")) for row in rows):
                count = max((len(self._samples.of(row.dataType())) for row in rows), default=1)
                for number in range(count):
                    try:
                        filled = self._filled(variant, number, frozenset())
                    except LookupError:
                        break
                    yield from (_Text(text, bool(rows)) for text in _strings_of(filled))

    def _variants(self, node: Any, kept: frozenset[str]) -> list[Any]:
        """Variants of an expression: each has one branch of every condition, and names replaced by their sources."""
        kind, children = kind_of(node), each(node.children())
        found: list[Any]
        if node.foldable():
            return [node]
        if kind in _NAMES:
            name = _name(node)
            sources = [] if name in kept else self._sources(name)
            if kind == "NamedLambdaVariable":  # an element of its sources, which are arrays
                is_text = str(node.dataType().typeName()).startswith("string")
                texts = (
                    [found.text for found in self._texts(node) if found.text is not None] if is_text and sources else []
                )
                found = [node, *(self._samples.text(text, node.dataType()) for text in texts)]
            else:
                found = [made for source in sources for made in self._variants(source, kept | {name})] or [node]
        elif kind in _BRANCHES or kind in ("Alias", "With"):
            parts = _branches(children, kind) if kind in _BRANCHES else children[:1]
            found = [made for part in parts for made in self._variants(part, kept)]
        else:
            if kind == "LambdaFunction":
                kept = kept | {_name(variable) for variable in each(node.arguments())}
            of_children = [self._variants(child, kept) for child in children]
            products = itertools.islice(itertools.product(*of_children), _MOST_VARIANTS + 1)
            found = [self._samples.with_children(node, made) for made in products] if children else [node]
        if len(found) > _MOST_VARIANTS:
            raise _TooManyError
        return found

    def _filled(self, node: Any, number: int, kept: frozenset[str]) -> Any:
        """An expression with samples in place of names."""
        kind, children = kind_of(node), each(node.children())
        if kind in _NAMES:
            return node if _name(node) in kept else self._samples.at(node.dataType(), number)
        if node.foldable() or not children:
            return node
        if kind == "LambdaFunction":
            kept = kept | {_name(variable) for variable in each(node.arguments())}
        return self._samples.with_children(node, [self._filled(child, number, kept) for child in children])

    def _followed(self, node: Any) -> Any:
        """An expression, with names replaced by their source while there is exactly one."""
        while kind_of(node) in _NAMES and len(sources := self._sources(_name(node))) == 1:
            node = sources[0]
        return node

    def _sources(self, name: str) -> list[Any]:
        """Expressions that a name stands for; empty for a column of the row."""
        if self._known is None:
            self._known = {}
            relations: dict[int, Any] = {}
            for operator in _operators(self._plan):
                if kind_of(operator) == "CTERelationDef":
                    relations[int(operator.id())] = operator
            for operator in _operators(self._plan):
                if kind_of(operator) == "CTERelationRef":
                    columns = each(relations[int(operator.cteId())].children().apply(0).output())
                    for column, source in zip(each(operator.output()), columns, strict=True):
                        if _name(column) != _name(source):
                            self._known.setdefault(_name(column), []).append(source)
                for expression in each(operator.expressions()):
                    self._learn(expression)
        return self._known.get(name, [])

    def _learn(self, node: Any) -> None:
        assert self._known is not None
        kind, children = kind_of(node), each(node.children())
        if kind in ("Alias", "CommonExpressionDef"):
            self._known.setdefault(_name(node), []).append(children[0])
        for child in children:
            if kind_of(child) == "LambdaFunction":
                for variable in each(child.arguments()):
                    # An argument of the function, or a result of its previous call.
                    self._known.setdefault(_name(variable), []).extend(children)
            self._learn(child)


def _converted(source: Any, target: Any) -> frozenset[str]:
    """Time types that a conversion makes of texts."""
    name = str(source.typeName())
    if name == "variant":
        return _times(target)
    if _has(source, ("string",), is_deep=False):
        return _times(target) if not _inner(target) else frozenset()
    pairs = zip(_inner(source), _inner(target), strict=False)
    return frozenset().union(*(_converted(one, other) for one, other in pairs))


def _times(kind: Any) -> frozenset[str]:
    """Time types in a type."""
    name = str(kind.typeName())
    return frozenset({name} & TIMES).union(*map(_times, _inner(kind)))


def _has(kind: Any, names: tuple[str, ...], *, is_deep: bool = True) -> bool:
    """Whether a type is one of these, or contains one."""
    # A type name may carry parameters: `string collate UTF8_LCASE`, `char(5)`.
    name = str(kind.typeName()).replace("varchar", "string").replace("char", "string")
    return name.startswith(names) or (is_deep and any(_has(part, names) for part in _inner(kind)))


def _inner(kind: Any) -> list[Any]:
    match str(kind.typeName()):
        case "array":
            return [kind.elementType()]
        case "map":
            return [kind.keyType(), kind.valueType()]
        case "struct":
            return [kind.apply(at).dataType() for at in range(kind.size())]
        case _:
            return []


def _strings_of(node: Any) -> list[str]:
    """Texts in the value of a constant; none where it fails, which `ingest.transform.constants` reports."""
    try:
        value = node.eval(None)
        return [] if value is None else list(_strings(value, node.dataType()))
    except errors_of_spark():
        return []


def _strings(value: Any, kind: Any) -> Iterator[str]:
    if value is None or not _has(kind, ("string", "variant")):
        return
    match str(kind.typeName()):
        case "array":
            for at in range(value.numElements()):
                yield from _strings(value.get(at, kind.elementType()), kind.elementType())
        case "map":
            for array, part in ((value.keyArray(), kind.keyType()), (value.valueArray(), kind.valueType())):
                for at in range(array.numElements()):
                    yield from _strings(array.get(at, part), part)
        case "struct":
            for at, part in enumerate(_inner(kind)):
                yield from _strings(value.get(at, part), part)
        case "variant":
            yield from _json_strings(json.loads(str(value)))
        case _:
            yield str(value)


def _json_strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _json_strings(part)


def _branches(children: Sequence[Any], kind: str) -> Sequence[Any]:
    """Children that an expression may take its value from."""
    if kind == "If":
        return children[1:]
    if kind == "CaseWhen":
        return [*children[1::2], *(children[-1:] if len(children) % 2 else [])]
    return children


def _unbound(node: Any, kept: frozenset[str]) -> list[Any]:
    """Names in an expression, except variables of its own lambda functions."""
    kind = kind_of(node)
    if kind in _NAMES:
        return [] if _name(node) in kept else [node]
    if kind == "LambdaFunction":
        kept = kept | {_name(variable) for variable in each(node.arguments())}
    return [name for child in each(node.children()) for name in _unbound(child, kept)]


def _operators(plan: Any) -> Iterator[Any]:
    yield plan
    for child in each(plan.children()):
        yield from _operators(child)


def _name(node: Any) -> str:
    """Spark's id of a column, variable or common expression."""
    if kind_of(node).startswith("CommonExpression"):
        return f"common {node.id().id()}"
    return str(node.exprId().id())


def _unknown(node: Any) -> str:
    said = " ".join(str(node.sql()).split())
    short = said if len(said) <= _LONGEST_NAME else f"{said[:_LONGEST_NAME]}…"
    return f"{short}, of a text that may be a time of day without a date (write whole timestamps, or use a format)"
