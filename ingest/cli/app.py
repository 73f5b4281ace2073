"""The command line's root, and the options that commands share; each group of commands is a module of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ingest.cli.exit_codes import EXIT_CODES

EPILOG = (
    f"Exit codes: {' · '.join(f'{row.code} {row.brief}' for row in EXIT_CODES if row.code < 100)}. "
    "A job file is described in docs/job-file.md."
)

ORDER = (
    "run",
    "recover",
    "show",
    "inspect",
    "watch",
    "offsets",
    "plot",
    "report",
    "fsck",
    "replay",
    "replay-quarantine",
    "read",
    "check-store",
    "demo",
    "package",
)
"""Order of the commands in ``--help``: the order of use, whichever module defines them."""


app = typer.Typer(
    help="Ingest append-only logs into Delta tables, exactly once, and show why on a timeline.",
    epilog=EPILOG,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Conf = Annotated[Path, typer.Argument(metavar="CONF", help="Job file (YAML).")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
LogJson = Annotated[bool, typer.Option("--log-json", help="Log one JSON object a line.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Log every transition, also on a terminal.")]
