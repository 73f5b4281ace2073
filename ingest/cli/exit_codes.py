"""Exit codes of all commands as one table: the meaning, the advice, and the errors that lead to each code.

`docs/cli.md` has the same rows; a test compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass

from timeline import errors
from timeline.errors import TidelineError


@dataclass(frozen=True)
class ExitCode:
    """One row of the table.

    Attributes:
        code: the number.
        brief: short text for ``--help``.
        meaning: what has happened.
        advice: what to do.
        errors: error classes with this code; it holds for subclasses that have no row of their own.
        restarts: whether a supervisor may start the command again; otherwise a person has to check first.
    """

    code: int
    brief: str
    meaning: str
    advice: str = ""
    errors: tuple[type[TidelineError], ...] = ()
    restarts: bool = False


EXIT_CODES = (
    ExitCode(0, "done", "done, or stopped by a signal with the open epoch settled", errors=(errors.StoppedError,)),
    ExitCode(
        1,
        "unforeseen",
        "an error that nobody foresaw",
        "report it with `--verbose`; the next start recovers",
        restarts=True,
    ),
    ExitCode(
        2,
        "wrong command or job file",
        "the command or the job file is wrong, or names a store that creates no object exclusively, does not accept "
        "the job's key, secret or rights, or has a certificate that is not trusted",
        "mend what the message names",
        (errors.ConfigError, errors.StoreRefusedError, errors.UntrustedStoreError),
    ),
    ExitCode(
        3,
        "another writer",
        "another process writes this timeline, or recovery waits for one",
        "wait, stop it, or `recover --force`",
        (errors.WriterBusyError,),
    ),
    ExitCode(
        4,
        "source",
        "the source cannot be read as planned, a file of it cannot be read, or a row stops the job",
        "the message names shard and range, or the file",
        (errors.SourceError, errors.DataError),
    ),
    ExitCode(
        5,
        "target",
        "a target cannot take the epoch, lacks epochs before it, or has some that the timeline has not",
        "the message holds the difference; a decided epoch stays pending and is applied later. Lost epochs: "
        "`tideline replay`",
        (errors.TargetError,),
    ),
    ExitCode(
        6,
        "storage unclear",
        "storage gives no clear answer, is full, or contradicts the protocol; `check-store`: the store is not safe; "
        "`fsck`: something was found",
        "nothing was concluded; free space if the message says so, and start again once it answers",
        (errors.TidelineError,),
        restarts=True,
    ),
    ExitCode(
        7,
        "fenced",
        "this writer was fenced: another process took over",
        "nothing; what this one wrote is removed, or the other has committed it",
        (errors.FencedError,),
    ),
    ExitCode(
        8,
        "Spark",
        "Spark did not start, or a task failed more often than it is retried, by an error that is not Tideline's own",
        "the message names the cause",
        (errors.SparkJobError,),
        restarts=True,
    ),
    ExitCode(
        9,
        "run has to go on",
        "a decided epoch has to be written to a target again, and `recover` reads no source; or a target lost it 4 "
        "times in one `run`",
        "`tideline run`",
        (errors.ReplayNeededError,),
        restarts=True,
    ),
    ExitCode(130, "Ctrl-C", "ended at once by Ctrl-C", "start again"),
    ExitCode(141, "reader gone", "whoever read the output has closed it, as `head` does"),
    ExitCode(143, "SIGTERM", "ended at once by SIGTERM", "start again"),
)
"""The table, ordered by code."""

BROKEN_PIPE = 141
"""128 + SIGPIPE, as a shell reports a program that the signal has ended."""

_CODES = {kind: row.code for row in EXIT_CODES for kind in row.errors}
_WHEREVER = (errors.StoreFullError, errors.StoreRefusedError, errors.UntrustedStoreError)
"""Errors that determine the exit code also where they are only the cause of the raised error."""


def exit_code(error: TidelineError) -> int:
    """Exit code of a command that an error ends: of a `_WHEREVER` error in its cause chain, else of its own class."""
    cause: BaseException | None = error
    seen: set[int] = set()
    while cause is not None and id(cause) not in seen:  # an error may be raised from itself
        seen.add(id(cause))
        if isinstance(cause, _WHEREVER):
            return code_of(type(cause))
        cause = cause.__cause__
    return code_of(type(error))


def code_of(kind: type[BaseException]) -> int:
    """Exit code of an error class: that of its own row, or of its nearest base class with a row."""
    return next(_CODES[each] for each in kind.__mro__ if each in _CODES)
