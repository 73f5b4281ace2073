"""Log output of the command line: human-readable text, or one JSON object a line."""

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

# The last one is Python's own logger of warnings.
_LOGGERS = ("timeline", "sinks", "ingest", "py.warnings")


class DiscreetFormatter(logging.Formatter):
    """Formats tracebacks without foreign errors' texts, which may hold a row or a secret, unless `is_verbose`."""

    is_verbose = False

    def formatException(self, ei: Any) -> str:
        """See logging.Formatter."""
        error = ei[1]
        return super().formatException(ei) if self.is_verbose or error is None else shown_trace(error)


class JsonFormatter(DiscreetFormatter):
    """One JSON object for each record: time (UTC), level, logger, message; for a failure ``kind``, the error's class.

    A record about an epoch has its number and instant as ``epoch`` and ``instant``; a traceback is in ``error``.
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
    """Epoch and instant of a record: from its `extra`, or from an `EpochRef` among its arguments."""
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

    On a terminal the progress line replaces transitions; elsewhere transitions are the progress.

    Args:
        console: stderr; a terminal gets text above the progress line.
        as_json: one JSON object a line.
        verbose: every transition also on a terminal, details, and the traceback of an unforeseen error.
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
    # Warnings printed as plain text would break readers of JSON lines.
    logging.captureWarnings(True)
    # Libraries log errors that they also raise: these would appear twice, py4j's with a traceback.
    logging.getLogger().handlers[:] = [handler if verbose else logging.NullHandler()]
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.setLevel(level)
        logger.propagate = False


def report_failure(message: str, kind: str, error: BaseException | None = None, about: EpochRef | None = None) -> None:
    """Print the exit message of a failed command: one line on stderr, or a JSON record with JSON logs.

    Args:
        message: what went wrong, human-readable.
        kind: the error's class, for JSON logs: more specific than the exit code.
        error: an unforeseen error; the JSON record has its traceback, error texts only with ``--verbose``.
        about: the epoch that the error has ended.
    """
    logger = logging.getLogger(__name__)
    if any(isinstance(handler.formatter, JsonFormatter) for handler in logging.getLogger(_LOGGERS[-1]).handlers):
        ids = {} if about is None else {"epoch": about.epoch, "instant": about.instant}
        logger.error("%s", message, exc_info=error, extra={"kind": kind, **ids})
        return
    if error is not None and logger.isEnabledFor(logging.DEBUG):
        traceback.print_exception(error, file=sys.stderr)
    print(f"tideline: {message}", file=sys.stderr)
