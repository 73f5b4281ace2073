"""A table's Arrow schema as Avro JSON, as Hudi's readers expect it in a commit.

Source: Apache Avro 1.11 specification, "Logical Types"; Hudi writes every column as a nullable union.
"""

from __future__ import annotations

import json
import re

import pyarrow as pa

from sinks.base import Json


def avro_schema(name: str, schema: pa.Schema) -> str:
    """The schema of a record of these columns, all nullable.

    Args:
        name: the table's name; characters that Avro forbids in names become underscores.
        schema: columns of the rows as they are in the data files.
    """
    base = re.sub(r"\W", "_", name, flags=re.ASCII)
    base = base if re.match(r"[A-Za-z_]", base) else f"_{base}"
    record = _record(f"{base}_record", f"hoodie.{base}", list(schema))
    return json.dumps(record, separators=(",", ":"))


def _record(name: str, namespace: str, fields: list[pa.Field]) -> dict[str, Json]:
    return {
        "type": "record",
        "name": name,
        "namespace": namespace,
        "fields": [
            {"name": field.name, "type": ["null", _avro_type(field, f"{namespace}.{name}")], "default": None}
            for field in fields
        ],
    }


def _avro_type(field: pa.Field, namespace: str) -> Json:
    kind = field.type
    if pa.types.is_boolean(kind):
        return "boolean"
    if pa.types.is_integer(kind):
        return "long" if kind.bit_width == 64 else "int"
    if pa.types.is_floating(kind):
        return "double" if kind.bit_width == 64 else "float"
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return "bytes"
    if pa.types.is_date(kind):
        return {"type": "int", "logicalType": "date"}
    if pa.types.is_timestamp(kind):
        return {"type": "long", "logicalType": "timestamp-micros" if kind.tz else "local-timestamp-micros"}
    if pa.types.is_decimal(kind):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return {"type": "array", "items": ["null", _avro_type(kind.value_field, f"{namespace}.{field.name}")]}
    if pa.types.is_map(kind):
        return {"type": "map", "values": ["null", _avro_type(kind.item_field, f"{namespace}.{field.name}")]}
    if pa.types.is_struct(kind):
        return _record(field.name, namespace, list(kind))
    return "string"
