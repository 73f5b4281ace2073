"""`tideline replay-quarantine`: decodes rejected records again, with the present job file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ingest.driver.build import TimelineHandle, build_job, known_schema, open_source, require_whole
from ingest.driver.losses import refuse_ahead, refuse_lost
from ingest.execution.isolated import IsolatedDecoder
from ingest.execution.reasons import Reasons
from timeline.active import ActiveTimeline
from timeline.chain import load_chain
from timeline.errors import ConfigError
from timeline.units import count

_UNJUDGED = (
    "  decoded only, no target was asked: it may refuse some of the accepted (a key that exists, an empty partition "
    "value), and the job's query may leave rows out"
)
"""Message on the limits of a trial."""


@dataclass(frozen=True)
class QuarantinePreview:
    """Result that a replay would have now; nothing was written.

    Attributes:
        records: rejected records that were not replayed yet.
        accepted: records that would become rows.
        reasons: reasons to reject the others again, with the number of records for each.
    """

    records: int
    accepted: int
    reasons: Mapping[str, int]

    @property
    def rejected(self) -> int:
        """Records that would be rejected again."""
        return self.records - self.accepted

    def as_json(self) -> dict[str, object]:
        """The result for ``--json``."""
        return {
            "records": self.records,
            "accepted": self.accepted,
            "rejected": self.rejected,
            "reasons": dict(self.reasons),
        }

    def words(self, *, is_dry_run: bool) -> str:
        """Message on what a replay would do, or why there is none."""
        if not self.records:
            return "nothing to replay: no record was rejected since the last replay"
        rejected = f"{count(self.records, 'record')} rejected"
        would = f"{rejected}: {self.accepted:,} would be accepted now, {self.rejected:,} would not"
        if not is_dry_run:
            would = f"none of {rejected} would be accepted now: nothing was written"
        lines = [would, *(f"  {rows:,} {reason}" for reason, rows in self.reasons.items())]
        return "\n".join([*lines, _UNJUDGED] if is_dry_run and self.accepted else lines)

    def done(self) -> str:
        """Message on what a replay has done."""
        again = f"{self.rejected:,} rejected again" if self.rejected else "none rejected again"
        return f"{count(self.records, 'record')} replayed: {self.accepted:,} accepted, {again}"


def _refuse_gaps(opened: TimelineHandle) -> None:
    job = build_job(opened)
    refuse_ahead(job)
    refuse_lost(job)


def try_rejected(opened: TimelineHandle) -> QuarantinePreview:
    """Decode the rejected records and write nothing; raises every refusal that a replay raises before it begins.

    Raises:
        ConfigError: nothing was ingested yet, the quarantine's rows cannot be read back, the timeline belongs to
            another job, or was created with other columns.
        InvariantError: an object of the timeline is missing.
        TargetRefusedError: a target, perhaps the quarantine, lacks epochs or has some that the timeline does not have.
        StoreUnavailableError: the quarantine cannot be read.
    """
    require_whole(opened)
    opened.require_owner()
    if opened.identity is None:
        raise ConfigError(f"{opened.store.url}: no epoch was written yet; tideline run {opened.config.name} first")
    source = open_source(opened.config, identity=opened.identity)
    source.require_quarantine()
    _refuse_gaps(opened)
    chain = load_chain(opened.store, ActiveTimeline.load(opened.store, opened.retry), opened.retry)
    schema = known_schema(opened)
    assert schema is not None, "the timeline exists"
    # Records may have been rejected because they crash the decoder.
    reader, decoder = source.reader(schema), IsolatedDecoder(source.decoder(schema, lineage=False))
    records = accepted = 0
    reasons = Reasons()
    for offsets in source.plan_rejected(chain.positions, chain.next_epoch).ranges:
        for block in reader.read(offsets):
            decoded = decoder.decode(block)
            records += block.rows
            accepted += decoded.accepted.num_rows
            reasons.add(decoded.rejected.column("reason"))
    return QuarantinePreview(records, accepted, reasons.counts)
