"""Choice of the columns of a Parquet file that get a dictionary, by the first rows of the file."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from sinks.parquet.stats import Leaf, leaves, values_of

_SAMPLE_ROWS = 16 * 1024
_MOST_DISTINCT = 0.6


def dictionary_columns(rows: pa.Table) -> list[str]:
    """Columns, as Parquet spells them, with enough repeated values for a dictionary to pay.

    The encoder gives up a dictionary of values that hardly repeat (request ids, addresses, durations) once it is too
    large. Until then the dictionary cost a third of a file's write time, and made the file larger.
    Floats get none: a dictionary distinguishes -0.0 from 0.0, and Spark would skip row groups with matching rows.

    Args:
        rows: the first rows of a file, at least one.
    """
    sample = rows.slice(0, _SAMPLE_ROWS).combine_chunks().to_batches()[0]
    return [".".join(leaf.path) for leaf in leaves(rows.schema) if not leaf.is_float and _repeats(sample, leaf)]


def _repeats(sample: pa.RecordBatch, leaf: Leaf) -> bool:
    if leaf.repeated:
        return True
    distinct: int = pc.count_distinct(values_of(sample, leaf.path)).as_py()
    return distinct <= int(_MOST_DISTINCT * sample.num_rows)
