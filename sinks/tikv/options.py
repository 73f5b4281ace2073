"""A TiKV target's block in a job file."""

from __future__ import annotations

import contextlib
import enum
from typing import ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from sinks.options import Keyspace, QueryRows, TargetOptions
from timeline.units import Duration


class TransactionLevel(enum.Enum):
    """Scope of one transaction."""

    CHECKPOINT = "checkpoint"
    """One epoch, all or nothing."""

    GLOBAL = "global"
    """A whole bounded source, as one epoch; for ``run --once``."""

    MINIBATCH = "minibatch"
    """Some rows of a task: visible at once, at least once."""


class WriteMode(enum.Enum):
    """Handling of a key that exists."""

    UPSERT = "upsert"
    INSERT = "insert"


class OnRow(enum.Enum):
    """Handling of a row that the target cannot write."""

    QUARANTINE = "quarantine"
    FAIL = "fail"


class DedupOptions(BaseModel):
    """Which of several rows of one key in one transaction stays.

    Attributes:
        rule: ``first`` or ``last`` by the column, or without one by shard and offset; ``any``.
        by: the column.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    rule: Literal["first", "last", "any"] = "last"
    by: str | None = None


class TlsOptions(BaseModel):
    """Files of a TLS connection to PD and TiKV, in PEM, at the same place on every machine.

    Attributes:
        ca: certificates of the trusted authorities.
        cert: this client's certificate.
        key: its private key.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    ca: str
    cert: str | None = None
    key: str | None = Field(default=None, repr=False)


class TikvOptions(TargetOptions):
    """``{type: tikv, pd: ["127.0.0.1:2379"], prefix: tevents_, key: [id]}``.

    Attributes:
        pd: PD's members; one that answers is enough.
        prefix: first bytes of all keys of this target: text, or ``0x`` and hex digits.
        key: the columns of a row's key, in this order.
        transaction: scope of one transaction.
        mode: handling of a key that exists.
        on_existing: with ``insert``: handling of the row whose key exists.
        on_null_key: handling of a row without a key.
        dedup: which of several rows of one key stays.
        delete_marker: with ``upsert``: a boolean column; where it is true, the key is deleted.
        lock_ttl: seconds that locks outlive their writer.
        max_rows: with ``minibatch``: rows after which a task commits.
        max_interval: with ``minibatch``: or seconds after which it commits.
        cluster_id: id of the expected cluster; None: any.
        tls: TLS files; None: no TLS.
        patience: seconds for which a request is retried before the epoch fails.
    """

    query_rows: ClassVar[QueryRows] = QueryRows.REFUSED
    may_need_replay: ClassVar[bool] = True

    pd: tuple[str, ...] = Field(min_length=1)
    prefix: str
    key: tuple[str, ...] = Field(min_length=1)
    transaction: TransactionLevel = TransactionLevel.CHECKPOINT
    mode: WriteMode = WriteMode.UPSERT
    on_existing: OnRow = OnRow.QUARANTINE
    on_null_key: OnRow = OnRow.FAIL
    dedup: DedupOptions = DedupOptions()
    delete_marker: str | None = None
    lock_ttl: Duration = Field(default=20.0, ge=1.0, le=600.0)
    max_rows: int = Field(default=1000, ge=1)
    max_interval: Duration = Field(default=1.0, gt=0.0)
    cluster_id: int | None = None
    tls: TlsOptions | None = None
    patience: Duration = Field(default=60.0, gt=0.0)

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        """Refuse options that contradict each other."""
        if self.transaction is TransactionLevel.MINIBATCH and self.mode is WriteMode.INSERT:
            raise ValueError(
                "mode insert is not for transaction minibatch, which may write a row twice and would refuse its own; "
                "allowed are mode upsert, or transaction checkpoint or global"
            )
        if self.delete_marker is not None and self.mode is WriteMode.INSERT:
            raise ValueError("delete_marker is not for mode insert; allowed with mode upsert")
        if len(set(self.key)) != len(self.key):
            raise ValueError(f"key names a column twice: {', '.join(self.key)}")
        return self

    @property
    def takes_whole_source(self) -> bool:
        """See TargetOptions."""
        return self.transaction is TransactionLevel.GLOBAL

    @property
    def keyspace(self) -> Keyspace:
        """See TargetOptions."""
        return Keyspace(frozenset(self.pd), self.prefix, _prefix_bytes(self.prefix))


def _prefix_bytes(prefix: str) -> bytes:
    """A prefix's bytes: text, or hex digits behind 0x; an invalid prefix is refused when the target is opened."""
    with contextlib.suppress(ValueError):
        if prefix.startswith(("0x", "0X")):
            return bytes.fromhex(prefix[2:])
    return prefix.encode()
