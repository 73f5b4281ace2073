"""Log output of the command line: text for people, one JSON object a line for machines."""

from __future__ import annotations

import json
import logging
import sys
import time
import traceback
from typing import Any

from rich.console import Console
from rich.text import Text

from timeline.epoch import EpochRef
from timeline.redact import shown_trace

# The last one is Python's own, of warnings.
_LOGGERS = ("timeline", "sinks", "ingest", "py.warnings")


class DiscreetFormatter(logging.Formatter):
    """Shows the steps to an error without texts that may repeat a row or a secret, unless asked for all of it."""

    is_verbose = False

    def formatException(self, ei: Any) -> str:
        """See logging.Formatter."""
        error = ei[1]
        return super().formatException(ei) if self.is_verbose or error is None else shown_trace(error)


class JsonFormatter(DiscreetFormatter):
    """One JSON object for each record: time (UTC), level, logger, message; of a failure the kind of error.

    What is about an epoch has its number and instant as ``epoch`` and ``instant``. Where there is a traceback, it is
    the object's ``error``.
    """

    def format(self, record: logging.LogRecord) -> str:
        """See logging.Formatter."""
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        fields: dict[str, object] = {
            "time": f"{moment}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        kind = getattr(record, "kind", None)
        if kind is not None:
            fields["kind"] = kind
        fields |= _ids(record)
        if record.exc_info:
            fields["error"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False)


def _ids(record: logging.LogRecord) -> dict[str, object]:
    """Which epoch a record is about: said by its maker, or by what its message is made of."""
    arguments = record.args if isinstance(record.args, tuple) else ()
    ref = next((each for each in arguments if isinstance(each, EpochRef)), None)
    epoch = getattr(record, "epoch", None if ref is None else ref.epoch)
    instant = getattr(record, "instant", None if ref is None else ref.instant)
    ids = {"epoch": None if epoch == -1 else epoch, "instant": instant}
    return {name: value for name, value in ids.items() if value is not None}


class _ConsoleHandler(logging.Handler):
    """Prints above the progress line; the terminal breaks long lines, so that they can be copied whole."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        """See logging.Handler."""
        style = "yellow" if record.levelno >= logging.WARNING else ""
        self._console.print(Text(self.format(record), style), soft_wrap=True)


def configure_logging(console: Console, *, as_json: bool, verbose: bool) -> None:
    """Send the project's records to stderr, once for the process.

    On a terminal, transitions are hidden behind the progress line unless asked for; elsewhere they
    are the progress. `verbose` adds details, and the traceback of an unforeseen error.
    """
    handler = _ConsoleHandler(console) if console.is_terminal and not as_json else logging.StreamHandler(sys.stderr)
    formatter: DiscreetFormatter = JsonFormatter()
    if not as_json:
        formatter = DiscreetFormatter("%(asctime)sZ %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S")
        formatter.converter = time.gmtime
    formatter.is_verbose = verbose
    handler.setFormatter(formatter)
    level = logging.INFO if as_json or not console.is_terminal else logging.WARNING
    if verbose:
        level = logging.DEBUG
    # Lines that are no JSON would break who reads the others.
    logging.captureWarnings(True)
    # What libraries log beside an error that they also raise would be read twice, and py4j's has a traceback.
    logging.getLogger().handlers[:] = [handler if verbose else logging.NullHandler()]
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.setLevel(level)
        logger.propagate = False


def report_failure(message: str, kind: str, error: BaseException | None = None, about: EpochRef | None = None) -> None:
    """The exit message of a command that fails: one line on stderr, a record where those are JSON.

    Args:
        message: what went wrong, for people.
        kind: the error's class, for machines: it says more than the exit code.
        error: an error that nobody foresaw; its steps are in the JSON record, its text and theirs only with details.
        about: the epoch that it has ended.
    """
    logger = logging.getLogger(__name__)
    if any(isinstance(handler.formatter, JsonFormatter) for handler in logging.getLogger(_LOGGERS[-1]).handlers):
        ids = {} if about is None else {"epoch": about.epoch, "instant": about.instant}
        logger.error("%s", message, exc_info=error, extra={"kind": kind, **ids})
        return
    if error is not None and logger.isEnabledFor(logging.DEBUG):
        traceback.print_exception(error, file=sys.stderr)
    print(f"tideline: {message}", file=sys.stderr)
