"""Which columns of a Parquet file get a dictionary, judged by the first rows that go into it."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from sinks.parquet.stats import Leaf, leaves, values_of

_SAMPLE_ROWS = 16 * 1024
_MOST_DISTINCT = 0.6


def dictionary_columns(rows: pa.Table) -> list[str]:
    """Columns, as Parquet spells them, whose values repeat so often that a dictionary pays.

    A dictionary of values that hardly repeat (request ids, addresses, durations) is given up by the encoder once it
    is too large. Up to there it cost a third of the time that a file takes to write, and made the file larger.
    Floats get none: a dictionary tells -0.0 from 0.0, and Spark would skip row groups with rows that match.

    Args:
        rows: the first of a file, at least one.
    """
    sample = rows.slice(0, _SAMPLE_ROWS).combine_chunks().to_batches()[0]
    return [".".join(leaf.path) for leaf in leaves(rows.schema) if not leaf.is_float and _repeats(sample, leaf)]


def _repeats(sample: pa.RecordBatch, leaf: Leaf) -> bool:
    if leaf.repeated:
        return True
    distinct: int = pc.count_distinct(values_of(sample, leaf.path)).as_py()
    return distinct <= int(_MOST_DISTINCT * sample.num_rows)
