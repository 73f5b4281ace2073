"""Every error that Tideline raises on purpose, in one tree.

::

    TidelineError
    ├── ConfigError               the job file is wrong: change it and start again
    ├── StoreError                an object store did not do as asked
    │   ├── AlreadyExistsError    someone created the object before: read it
    │   ├── NotFoundError         there is no such object
    │   └── StoreUnavailableError it may or may not have happened: read it back
    │       ├── StoreFullError    it has no space left: free some, then start again
    │       ├── StoreRefusedError key, secret or rights are wrong: asking again does not help
    │       └── UntrustedStoreError its certificate is not trusted: asking again does not help
    ├── FormatError               a name or body that this version cannot read
    ├── WriterBusyError           another writer holds a live lease: wait, or force
    ├── FencedError               another process decided this epoch: stop
    │   └── OutrunError           it was a writer before this one: recover and go on, or stop
    ├── SourceError               the source cannot be read as planned
    │   ├── RangeGoneError        a planned range is no longer there
    │   │   └── RangeRewrittenError   its file was truncated or written anew since: plan again
    │   └── SourceChangedError    a shard shrank or changed below its committed offset
    ├── DataError                 a row stops the job because the job file asks for that
    ├── TargetError               a target cannot take the epoch
    │   ├── TargetRefusedError    its schema, partitioning or features forbid it: nothing was written
    │   ├── TargetBusyError       someone else writes the same rows: roll back, and try again
    │   ├── ReplayNeededError     it lost what was prepared and decided: write the epoch to it again
    │   ├── CommitRejectedError   the commit did not land: safe to try again
    │   └── CommitUnknownError    the commit may have landed: look it up, delete nothing
    ├── SparkJobError             Spark did not start, or a task failed more often than it is retried
    ├── RowCountError             rows read are not rows committed + rows quarantined
    ├── StoppedError              the job was asked to stop; its open epoch is settled
    ├── InvariantError            storage contradicts the protocol: a person has to look
    └── HaltError                 recovery cannot tell commit from rollback: nothing was touched

A class exists where a caller does something different for it. Messages carry the instant, epoch
or target, what was found, what is allowed, and the next step.
"""


class TidelineError(Exception):
    """Root of the tree: anything that Tideline reports to its user in one message."""


class ConfigError(TidelineError):
    """The job file or a command's argument is wrong; nothing was started."""


class StoreError(TidelineError):
    """An object store did not do as asked."""


class AlreadyExistsError(StoreError):
    """The object exists: someone else won, or an own earlier attempt did. Read before deciding."""


class NotFoundError(StoreError):
    """There is no object at this path."""


class StoreUnavailableError(StoreError):
    """The store gave no clear answer: the call may or may not have taken effect. Read it back."""


class StoreFullError(StoreUnavailableError):
    """No space is left there: free some, and start again. What was being written is not there."""


class StoreRefusedError(StoreUnavailableError):
    """The store does not let this job in, or do that: key, secret, token or rights are wrong, now and next time."""


class UntrustedStoreError(StoreUnavailableError):
    """The server's certificate is not trusted: nothing was sent, and it will be the same next time."""


class FormatError(TidelineError):
    """A file name or a body is not what the storage format says, or of a newer format version."""


class WriterBusyError(TidelineError):
    """Another writer's lease on this timeline is live; the message says who. Wait or force."""


class FencedError(TidelineError):
    """Another process took over or decided this epoch; this process has cleaned up and must stop."""


class OutrunError(FencedError):
    """A writer that this one has taken over from woke up and decided this epoch; this one still is the writer."""


class SourceError(TidelineError):
    """The source cannot be listed or read as planned."""


class RangeGoneError(SourceError):
    """A planned offset range is no longer there, in whole or in part; the message names it."""


class RangeRewrittenError(RangeGoneError):
    """A planned range's file was truncated or written anew in place; a new plan finds its content, or the loss."""


class SourceChangedError(SourceError):
    """A shard shrank or changed below its committed offset; what was committed cannot be continued."""


class DataError(TidelineError):
    """A row stops the job because the job file says so (for example ``on_unknown_field: fail``)."""


class TargetError(TidelineError):
    """A target cannot take an epoch."""


class TargetRefusedError(TargetError):
    """Schema, partitioning or table features do not allow it; the message holds the difference."""


class TargetBusyError(TargetError):
    """Another writer holds or changed the same rows meanwhile; the epoch can be tried again from its offsets."""


class ReplayNeededError(TargetError):
    """What was prepared is gone though the epoch is decided: ``tideline run`` writes it again from its offsets."""


class CommitRejectedError(TargetError):
    """The target's commit did not land. Trying again is safe."""


class CommitUnknownError(TargetError):
    """The target's commit may have landed. Look it up; delete nothing."""


class SparkJobError(TidelineError):
    """Spark did not start, or a task failed more often than Spark retries it; the epoch is rolled back."""


class RowCountError(TidelineError):
    """Rows read differ from rows committed + rows quarantined; the epoch is not prepared."""


class StoppedError(TidelineError):
    """The job was asked to stop in the middle of an epoch, which was settled by the rule."""


class InvariantError(TidelineError):
    """Storage contradicts the protocol (a gap between epochs, two plans of one instant)."""


class HaltError(TidelineError):
    """Recovery cannot tell commit from rollback. Nothing was touched; the message says what to do."""
