"""Log output of the command line: text for people, one JSON object a line for machines."""

from __future__ import annotations

import json
import logging
import sys
import time

from rich.console import Console
from rich.logging import RichHandler


class JsonFormatter(logging.Formatter):
    """One JSON object for each record: time (UTC), level, logger, message, and the error if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """See logging.Formatter."""
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        fields = {
            "time": f"{moment}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["error"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False)


def configure_logging(console: Console, *, as_json: bool, verbose: bool) -> None:
    """Send the project's records to stderr, once for the process.

    On a terminal, transitions are hidden behind the progress line unless asked for; elsewhere they
    are the progress.
    """
    handler: logging.Handler
    if as_json:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(JsonFormatter())
    elif console.is_terminal:
        handler = RichHandler(console=console, show_path=False, show_level=False, markup=False, highlighter=None)
    else:
        handler = logging.StreamHandler(sys.stderr)
        formatter = logging.Formatter("%(asctime)sZ %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S")
        formatter.converter = time.gmtime
        handler.setFormatter(formatter)
    level = logging.INFO if verbose or as_json or not console.is_terminal else logging.WARNING
    for name in ("timeline", "sinks", "ingest"):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.setLevel(level)
        logger.propagate = False
