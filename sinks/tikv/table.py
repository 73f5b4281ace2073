"""One prefix of a TiKV cluster as a job's target, for every transaction level: connection, records, checks."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Self

from sinks.base import Lookup, SinkContext, TargetOptions
from sinks.held import Base, Held
from sinks.tikv.channels import Tls
from sinks.tikv.client import Endpoint, TikvClient, connection
from sinks.tikv.dedup import KeptRow, Rule
from sinks.tikv.key_codec import check_prefix
from sinks.tikv.options import TikvOptions, WriteMode
from sinks.tikv.records import RecordStore, RowLayout
from sinks.tikv.staged import Stager
from sinks.tikv.writer import RowRules
from timeline.epoch import EpochRef, Part
from timeline.errors import ConfigError, StoreUnavailableError, TargetRefusedError

if TYPE_CHECKING:
    import pyarrow as pa

_LOG = logging.getLogger(__name__)


@dataclass
class TikvTable:
    """Base of the sinks that write to TiKV.

    Attributes:
        target: the target's name in the job.
        app_id: key of this job's records.
        options: the target's block of the job file.
        prefix: first bytes of all keys.
        stager: encodes rows as keys and values.
        endpoint: the cluster.
    """

    target: str
    app_id: str
    options: TikvOptions
    prefix: bytes
    stager: Stager
    endpoint: Endpoint

    @classmethod
    def open(cls, options: TargetOptions, context: SinkContext) -> Self:
        """The table that a job file's block describes; no I/O.

        Raises:
            ConfigError: prefix, key or another column does not fit the schema.
        """
        assert isinstance(options, TikvOptions)
        prefix = check_prefix(options.prefix)
        rule = Rule(KeptRow(options.dedup.rule), options.dedup.by)
        tls = Tls(**options.tls.model_dump()) if options.tls is not None else None
        return cls(
            target=options.name or f"tikv:{options.prefix}",
            app_id=context.app_id,
            options=options,
            prefix=prefix,
            stager=Stager.of(
                context.schema, prefix=prefix, key=options.key, rule=rule, delete_marker=options.delete_marker
            ),
            endpoint=Endpoint(options.pd, tls, options.patience),
        )

    @property
    def client(self) -> TikvClient:
        """This process' client of the cluster."""
        return connection(self.endpoint)

    @property
    def records(self) -> RecordStore:
        """This job's records below the prefix."""
        return RecordStore(self.client, self.prefix, self.app_id)

    @property
    def row_schema(self) -> pa.Schema:
        """See ReadableSink."""
        return self.stager.row_schema

    @property
    def ttl_ms(self) -> int:
        """Milliseconds by which locks outlive their writer."""
        return round(self.options.lock_ttl * 1000)

    @cached_property
    def rules(self) -> RowRules:
        """Handling of rows that cannot be written as they are."""
        options = self.options
        return RowRules(
            self.target, self.stager, options.mode is WriteMode.INSERT, options.on_existing, options.on_null_key
        )

    def ensure(self) -> None:
        """See Sink; checks PD, the cluster id of its endpoints, and the layout of the rows below the prefix."""
        self.client.pd.check_endpoints()
        cluster, meant = self.client.pd.cluster_id, self.options.cluster_id
        if meant is not None and cluster != meant:
            raise ConfigError(
                f"{self.target}: {', '.join(self.options.pd)} is cluster {cluster}, cluster_id says {meant}: "
                "is this the cluster that is meant?"
            )
        self.check_layout()

    @cached_property
    def layout(self) -> RowLayout:
        """Key and value columns of this job."""
        stager = self.stager
        return RowLayout(
            tuple((field.name, str(field.type)) for field in stager.keys.columns),
            tuple((field.name, str(field.type)) for field in stager.values.schema),
        )

    def check_layout(self) -> None:
        """Check that the rows of all jobs below the prefix have this job's layout.

        Raises:
            TargetRefusedError: a layout differs; the message names the difference.
        """
        for layout in self.records.layouts():
            difference = layout.difference(self.layout)
            if difference is not None:
                raise TargetRefusedError(
                    f"{self.target}: rows below prefix {self.options.prefix} have another layout: in this job "
                    f"{difference}. Write to another prefix"
                )

    def lookup(self, epoch: EpochRef) -> Lookup:
        """See Sink."""
        try:
            return Lookup.COMMITTED if self.is_applied(epoch) else Lookup.NOT_COMMITTED
        except StoreUnavailableError as error:
            _LOG.warning("%s: %s cannot be looked up: %s", self.target, epoch, error)
            return Lookup.UNKNOWN

    def contents(self) -> TikvContents:
        """See HoldingSink."""
        return TikvContents(self)

    def is_applied(self, epoch: EpochRef) -> bool:
        """Whether the record of an epoch or of a later one is visible."""
        return bool(self.records.epochs(since=epoch.epoch))

    def older_records(self, epoch: EpochRef) -> list[bytes]:
        """Keys of epoch records that are obsolete once an epoch is completed: earlier ones, but not the newest."""
        return [self.records.epoch_key(each) for each in self.records.epochs()[:-1] if each < epoch.epoch]

    def check_cluster(self, part: Part, prepared: str) -> None:
        """Check that a part was prepared in the cluster that answers now.

        Args:
            part: a prepared part.
            prepared: id of the cluster in which it was prepared.

        Raises:
            TargetRefusedError: the clusters differ.
        """
        now = str(self.client.pd.cluster_id)
        if prepared != now:
            raise TargetRefusedError(
                f"{self.target}: {part.epoch} was prepared in cluster {prepared}, {', '.join(self.options.pd)} is "
                f"cluster {now}: name the cluster's own PD"
            )


@dataclass(frozen=True)
class TikvContents:
    """Reads the epoch records below one prefix; see `sinks.held.TargetContents`.

    Attributes:
        table: the target.
    """

    table: TikvTable

    @property
    def place(self) -> str:
        """See TargetContents."""
        return ""

    def held(self, known: Base | None = None) -> Held:
        """See TargetContents; the cluster is the table; rows that other clients delete are not noticed."""
        cluster, epochs = str(self.table.client.pd.cluster_id), self.table.records.epochs()
        return Held(cluster, len(epochs) - 1, epochs[-1] if epochs else None)

    def has_all(self, part: Part) -> bool:
        """See TargetContents: there are no files."""
        return not part.files

    def missing_files(self) -> Sequence[str]:
        """See TargetContents: there are no files."""
        return ()
