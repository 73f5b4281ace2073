"""Way 4: single lines by the definition of accepted values (`values`): exact, with the reasons of rejections."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np
import pyarrow as pa

from ingest.sources.decode.json.line_block import DecodedLines
from ingest.sources.decode.lines import Positions, invalid_utf8
from ingest.sources.decode.options import UnknownField
from ingest.sources.decode.records import RawRecords
from ingest.sources.decode.rows import unknown_field_error
from ingest.sources.decode.time_format import TimeFormat
from ingest.sources.decode.values import Rejection, declared_type, parse_object, printable, to_value
from ingest.sources.decode.verbatim_text import with_verbatim_texts


@dataclass(frozen=True)
class SingleLines:
    """Lines that were decoded one by one.

    Attributes:
        accepted: the lines that are rows.
        rejected: index and reason of each other line, in the order of the lines.
    """

    accepted: DecodedLines
    rejected: Mapping[int, str]


@dataclass(frozen=True)
class LineByLineDecoder:
    """Decodes JSON lines one by one.

    Attributes:
        schema: the columns.
        timestamp_formats: by column.
        on_unknown_field: treatment of an object with a field that the schema does not have.
    """

    schema: pa.Schema
    timestamp_formats: Mapping[str, TimeFormat | None]
    on_unknown_field: UnknownField

    def decode(self, records: RawRecords, lines: Positions) -> SingleLines:
        """Decode some of the records.

        Args:
            records: all records of a block.
            lines: indices of the records to decode, ascending.

        Raises:
            DataError: an object has an unknown field and the job says ``on_unknown_field: fail``.
        """
        rows: list[list[object]] = []
        accepted: list[int] = []
        rejected: dict[int, str] = {}
        at = pa.array(lines, pa.int64())
        offsets, texts = records.offsets.take(at).to_pylist(), records.texts.take(at).to_pylist()
        for index, offset, raw in zip(lines.tolist(), offsets, texts, strict=True):
            try:
                rows.append(self._decode_line(raw, records.shard, offset))
                accepted.append(index)
            except Rejection as rejection:
                rejected[index] = printable(str(rejection))
            except RecursionError:
                rejected[index] = "malformed JSON: nested too deeply"
        columns = [pa.array([row[at] for row in rows], field.type) for at, field in enumerate(self.schema)]
        return SingleLines(DecodedLines(np.array(accepted, np.intp), columns), rejected)

    def _decode_line(self, line: bytes, shard: str, offset: int) -> list[object]:
        try:
            text = line.decode()
        except UnicodeDecodeError as failure:
            raise Rejection(invalid_utf8(failure)) from None
        found = parse_object(text)
        if self.on_unknown_field is not UnknownField.DROP:
            unknown = _unknown_field(found, pa.struct(list(self.schema)))
            if unknown is not None and self.on_unknown_field is UnknownField.FAIL:
                raise unknown_field_error(shard, offset, unknown)
            if unknown is not None:
                raise Rejection(f"{unknown}: the schema has no such field")
        whole = with_verbatim_texts(text, found, pa.struct(list(self.schema)))
        values = cast(dict[str, object], whole)
        return [
            to_value(values.get(field.name), field.name, field.type, self.timestamp_formats.get(field.name))
            for field in self.schema
        ]


def _unknown_field(value: object, kind: pa.DataType, path: str = "") -> str | None:
    """Path of the first field that a struct type does not have, at any depth."""
    if pa.types.is_struct(kind) and isinstance(value, dict):
        for name, item in value.items():
            declared = declared_type(kind, name)
            if declared is None:
                return printable(f"{path}{name}")
            found = _unknown_field(item, declared, f"{path}{name}.")
            if found is not None:
                return found
    elif pa.types.is_list(kind) and isinstance(value, list):
        return _first_unknown(value, kind.value_type, path)
    elif pa.types.is_map(kind) and isinstance(value, dict):
        return _first_unknown(value.values(), kind.item_type, path)
    return None


def _first_unknown(items: Iterable[object], kind: pa.DataType, path: str) -> str | None:
    return next((found for item in items if (found := _unknown_field(item, kind, path)) is not None), None)
