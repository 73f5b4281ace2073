"""A TiKV target's block: contradictions are refused with the allowed values, and secrets are not shown."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError

from sinks.base import SinkContext
from sinks.tikv.minibatch import MinibatchSink
from sinks.tikv.options import OnRow, TikvOptions, TransactionLevel, WriteMode
from sinks.tikv.sink import TransactionSink
from sinks.tikv.sink_types import TikvTarget
from timeline.errors import ConfigError

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string()), ("gone", pa.bool_())])


def options(**block: Any) -> TikvOptions:
    return TikvOptions.model_validate({"type": "tikv", "pd": ["pd:2379"], "prefix": "t_", "key": ["id"]} | block)


def test_short_block_means_an_upsert_in_one_transaction_for_each_epoch() -> None:
    short = options()
    assert (short.transaction, short.mode) == (TransactionLevel.CHECKPOINT, WriteMode.UPSERT)
    assert (short.on_null_key, short.on_existing) == (OnRow.FAIL, OnRow.QUARANTINE)
    assert not short.takes_whole_source


@pytest.mark.parametrize(
    ("block", "words"),
    [
        (
            {"transaction": "minibatch", "mode": "insert"},
            "allowed are mode upsert, or transaction checkpoint or global",
        ),
        ({"mode": "insert", "delete_marker": "gone"}, "allowed with mode upsert"),
        ({"key": ["id", "id"]}, "key names a column twice"),
        ({"pd": []}, "pd"),
        ({"key": []}, "key"),
        ({"transaction": "exactly"}, "'checkpoint', 'global' or 'minibatch'"),
        ({"dedup": {"rule": "newest"}}, "'first', 'last' or 'any'"),
        ({"lock_ttl": 0.2}, "greater than or equal to 1"),
        ({"tls": {"ca": "a", "crt": "b"}}, "tls.crt"),
        ({"pdd": ["x"]}, "pdd"),
    ],
)
def test_block_that_contradicts_itself_is_refused(block: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        options(**block)


def test_place_of_the_private_key_is_not_shown() -> None:
    assert "secret.key" not in repr(options(tls={"ca": "ca.pem", "cert": "c.pem", "key": "/secret.key"}))


@pytest.mark.parametrize(
    ("block", "words"),
    [
        ({"key": ["nope"]}, "key: there is no column `nope`; allowed are id, text, gone"),
        ({"dedup": {"rule": "last", "by": "nope"}}, r"dedup\.by: there is no column `nope`"),
        ({"delete_marker": "text"}, "delete_marker: column `text` is string; allowed is boolean"),
        ({"prefix": ""}, "prefix"),
    ],
)
def test_block_that_does_not_fit_the_columns_is_refused_before_anything_is_connected(
    block: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        TikvTarget.open(options(**block), SinkContext("job", SCHEMA))


@pytest.mark.parametrize(
    ("level", "kind"),
    [("checkpoint", TransactionSink), ("global", TransactionSink), ("minibatch", MinibatchSink)],
)
def test_level_decides_on_the_sink(level: str, kind: type) -> None:
    assert isinstance(TikvTarget.open(options(transaction=level), SinkContext("job", SCHEMA)), kind)


def test_global_transaction_takes_the_whole_source() -> None:
    assert options(transaction="global").takes_whole_source


def test_missing_file_of_tls_is_named() -> None:
    sink = TransactionSink.open(options(tls={"ca": "/nowhere/ca.pem"}), SinkContext("job", SCHEMA))
    with pytest.raises(ConfigError, match=r"/nowhere/ca\.pem cannot be read: No such file"):
        sink.ensure()
