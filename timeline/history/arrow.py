"""Views of a timeline as Arrow tables: the only module of its layer that imports Arrow, itself imported on demand."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime

import pyarrow as pa

from timeline.errors import ConfigError
from timeline.history.epochs import History
from timeline.history.rows import EpochRow, FileRow, InstantRow, OffsetRow, RejectedRow

if typing.TYPE_CHECKING:
    import pandas as pd

_VIEWS: Mapping[str, tuple[type, Callable[[History], Sequence[object]]]] = {
    "instants": (InstantRow, History.instants),
    "epochs": (EpochRow, History.epochs),
    "offsets": (OffsetRow, History.offsets),
    "files": (FileRow, History.files),
    "rejected": (RejectedRow, History.rejected),
}

VIEWS = tuple(_VIEWS)
"""Names of the views."""

_ARROW: Mapping[type, pa.DataType] = {
    str: pa.string(),
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    datetime: pa.timestamp("ms", "UTC"),
}


def view_schema(view: str) -> pa.Schema:
    """Columns of one view, in the order of its row's fields.

    Raises:
        ValueError: the view is unknown.
    """
    row = _view(view)[0]
    hints = typing.get_type_hints(row)
    return pa.schema([_field(each.name, hints[each.name]) for each in fields(typing.cast(typing.Any, row))])


def view_table(history: History, view: str) -> pa.Table:
    """One view of a timeline as an Arrow table.

    Args:
        history: the timeline's history.
        view: one of `VIEWS`.

    Raises:
        ValueError: the view is unknown.
    """
    schema = view_schema(view)
    rows = _view(view)[1](history)
    columns = [_column([getattr(row, each.name) for row in rows], each.type) for each in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def view_frame(history: History, view: str) -> pd.DataFrame:
    """One view of a timeline as a pandas data frame; columns of integers stay integers if values are missing.

    Raises:
        ConfigError: pandas is not installed.
        ValueError: the view is unknown.
    """
    try:
        import pandas as pd
    except ImportError as error:
        raise ConfigError(f"data frames need pandas: pip install 'tideline[look]' ({error})") from error
    frame: pd.DataFrame = view_table(history, view).to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get)
    return frame


def _view(view: str) -> tuple[type, Callable[[History], Sequence[object]]]:
    if view not in _VIEWS:
        raise ValueError(f"view {view!r}: allowed are {', '.join(VIEWS)}")
    return _VIEWS[view]


def _field(name: str, hint: object) -> pa.Field:
    if isinstance(hint, types.UnionType):
        (kind,) = (each for each in typing.get_args(hint) if each is not types.NoneType)
        return pa.field(name, _ARROW[kind])
    if typing.get_origin(hint) is Mapping:
        return pa.field(name, pa.map_(pa.string(), pa.string()), nullable=False)
    return pa.field(name, _ARROW[typing.cast(type, hint)], nullable=False)


def _column(values: Sequence[object], kind: pa.DataType) -> pa.Array:
    if pa.types.is_map(kind):
        return pa.array([list(typing.cast(Mapping[str, str | None], each).items()) for each in values], kind)
    return pa.array(values, kind)
