"""Every error that Tideline raises on purpose, in one tree.

::

    TidelineError
    ├── ConfigError               the job file is wrong: change it and start again
    ├── StoreError                a call to an object store failed
    │   ├── AlreadyExistsError    the object exists: read it
    │   ├── NotFoundError         the object does not exist
    │   └── StoreUnavailableError the call may or may not have taken effect: read it back
    │       ├── StoreFullError    no space is left: free some, then start again
    │       ├── StoreRefusedError key, secret or rights are wrong: a retry does not help
    │       └── UntrustedStoreError its certificate is not trusted: a retry does not help
    ├── FormatError               a name or body that this version cannot read
    ├── WriterBusyError           another writer holds a live lease: wait, or force
    ├── FencedError               another process decided this epoch: stop
    │   └── OutrunError           the process was an earlier writer: recover and go on, or stop
    ├── SourceError               the source cannot be read as planned
    │   ├── RangeGoneError        a planned range no longer exists
    │   │   └── RangeRewrittenError   its file was truncated or rewritten since: plan again
    │   └── SourceChangedError    a shard shrank or changed below its committed offset
    ├── DataError                 a row stops the job because the job file asks for that
    ├── TargetError               a target cannot take the epoch
    │   ├── TargetRefusedError    its schema, partitioning or features forbid it: nothing was written
    │   ├── TargetBusyError       another writer writes the same rows: roll back, and retry
    │   ├── ReplayNeededError     it lost prepared data of a decided epoch: write the epoch to it again
    │   ├── CommitRejectedError   the commit did not land: safe to retry
    │   └── CommitUnknownError    the commit may have landed: look it up, delete nothing
    ├── SparkJobError             Spark did not start, or a task failed more often than it is retried
    ├── RowCountError             rows read are not rows committed + rows quarantined
    ├── StoppedError              the work was asked to stop; a run settles its open epoch
    ├── InvariantError            storage contradicts the protocol: a person must check it
    └── HaltError                 recovery cannot tell commit from rollback: nothing was touched

A class exists where a caller does something different for it. Messages carry the instant, epoch
or target, the value found, the values allowed, and the next step.
"""


class TidelineError(Exception):
    """Root of the tree: an error that Tideline reports to its user in one message."""


class ConfigError(TidelineError):
    """The job file or a command's argument is wrong; nothing was started."""


class StoreError(TidelineError):
    """A call to an object store failed."""


class AlreadyExistsError(StoreError):
    """The object exists: another process won, or an earlier attempt of this one. Read it before deciding."""


class NotFoundError(StoreError):
    """There is no object at this path."""


class StoreUnavailableError(StoreError):
    """The store gave no clear answer: the call may or may not have taken effect. Read it back."""


class StoreFullError(StoreUnavailableError):
    """The store has no space left: free some, and start again. The object being written does not exist."""


class StoreRefusedError(StoreUnavailableError):
    """The store refuses the job or the call: key, secret, token or rights are wrong. A retry does not help."""


class UntrustedStoreError(StoreUnavailableError):
    """The server's certificate is not trusted: nothing was sent. A retry does not help."""


class FormatError(TidelineError):
    """A file name or a body does not match the storage format, or has a newer format version."""


class WriterBusyError(TidelineError):
    """Another writer's lease on this timeline is live; the message names the writer. Wait or force."""


class FencedError(TidelineError):
    """Another process took over or decided this epoch; this process has cleaned up and must stop."""


class OutrunError(FencedError):
    """A late writer, which this process took over from, decided this epoch; this process still is the writer."""


class SourceError(TidelineError):
    """The source cannot be listed or read as planned."""


class RangeGoneError(SourceError):
    """A planned offset range no longer exists, in whole or in part; the message names the range."""


class RangeRewrittenError(RangeGoneError):
    """A planned range's file was truncated or rewritten in place; a new plan finds its content, or the loss."""


class SourceChangedError(SourceError):
    """A shard shrank or changed below its committed offset; ingestion cannot continue from that offset."""


class DataError(TidelineError):
    """A row stops the job because the job file says so (for example ``on_unknown_field: fail``)."""


class TargetError(TidelineError):
    """A target cannot take an epoch."""


class TargetRefusedError(TargetError):
    """Schema, partitioning or table features do not allow the epoch; the message shows the difference."""


class TargetBusyError(TargetError):
    """Another writer holds or changed the same rows meanwhile; the epoch can be retried from its offsets."""


class ReplayNeededError(TargetError):
    """Prepared data of a decided epoch is missing: ``tideline run`` writes the epoch again from its offsets."""


class CommitRejectedError(TargetError):
    """The target's commit did not land. A retry is safe."""


class CommitUnknownError(TargetError):
    """The target's commit may have landed. Look it up; delete nothing."""


class SparkJobError(TidelineError):
    """Spark did not start, or a task failed more often than Spark retries it; the epoch is rolled back."""


class RowCountError(TidelineError):
    """Rows read differ from rows committed + rows quarantined; the epoch is not prepared."""


class StoppedError(TidelineError):
    """The work was stopped on request. A run settles its open epoch."""


class InvariantError(TidelineError):
    """Storage contradicts the protocol (a gap between epochs, two plans of one instant)."""


class HaltError(TidelineError):
    """Recovery cannot tell commit from rollback. Nothing was touched; the message says what to do."""
