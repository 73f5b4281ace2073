from __future__ import annotations

import pyarrow as pa
import pytest

from sinks.tikv.dedup import STANDS_FOR, KeptRow, Rule, dropped, pick, sorted_places
from timeline.errors import ConfigError

SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("order", pa.int64()),
        ("shard", pa.string()),
        ("offset", pa.int64()),
        (STANDS_FOR, pa.int64()),
    ]
)
FIRST, LAST = Rule(KeptRow.FIRST, "at"), Rule(KeptRow.LAST, "at")


def table(*rows: tuple[int | None, str, int, bytes | None], stands_for: int = 1) -> pa.Table:
    """Rows of one key: order, shard, offset, value."""
    return pa.Table.from_pylist(
        [
            {"key": b"k", "order": order, "shard": shard, "offset": offset, "value": value, STANDS_FOR: stands_for}
            for order, shard, offset, value in rows
        ],
        SCHEMA,
    )


@pytest.mark.parametrize(
    ("low", "high"),
    [
        ((None, "z", 9, b"z"), (-(2**63), "a", 0, b"a")),
        ((1, "z", 9, b"z"), (2, "a", 0, b"a")),
        ((1, "a", 9, b"z"), (1, "b", 0, b"a")),
        ((1, "a", 1, b"z"), (1, "a", 2, b"a")),
        ((1, "a", 1, b"a"), (1, "a", 1, b"b")),
        ((1, "a", 1, None), (1, "a", 1, b"")),
    ],
    ids=["null lowest", "column", "shard", "offset", "value", "delete"],
)
def test_rows_of_a_key_are_in_one_total_order(
    low: tuple[int | None, str, int, bytes | None], high: tuple[int | None, str, int, bytes | None]
) -> None:
    for rows in ((low, high), (high, low)):
        assert pick(table(*rows), FIRST) == table(low, stands_for=2)
        assert pick(table(*rows), LAST) == table(high, stands_for=2)


def test_any_keeps_the_first_by_shard_and_offset_whatever_the_values() -> None:
    kept = (None, "a", 1, b"z")
    for rows in (((None, "a", 2, b"a"), kept, (None, "b", 0, b"a")), (kept, (None, "b", 0, b"a"))):
        found = pick(table(*rows).drop_columns(["order"]), Rule(KeptRow.ANY))
        assert found == table(kept, stands_for=len(rows)).drop_columns(["order"])


def test_any_with_a_column_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"`at`.*rule first or last"):
        Rule(KeptRow.ANY, "at")


def test_nothing_stays_of_nothing() -> None:
    assert pick(SCHEMA.empty_table(), LAST) == SCHEMA.empty_table()
    assert dropped(SCHEMA.empty_table()) == 0


def test_rows_in_many_chunks_are_one_table() -> None:
    rows = [table((n, "s", n, b"v")) for n in range(10)]
    found = pick(pa.concat_tables(rows), LAST)
    assert found == table((9, "s", 9, b"v"), stands_for=10)
    assert dropped(found) == 9


@pytest.mark.parametrize(
    "keys",
    [
        [],
        [b""],
        [b"same", b"same"],
        [b"", b"\0", b"\0\0"],
        [b"prefix__", b"prefix__\0", b"prefix_"],
        [b"12345678" + bytes([n]) for n in (255, 0, 128)],
        [b"p" + b"x" * 30 + bytes([n]) + b"y" * 30 + bytes([m]) for n in (2, 1) for m in (9, 8)],
    ],
    ids=str,
)
def test_places_are_in_byte_order(keys: list[bytes]) -> None:
    places = sorted_places(pa.array(keys, pa.binary()))
    assert [keys[place] for place in places] == sorted(keys)
    assert sorted(places.tolist()) == list(range(len(keys)))
