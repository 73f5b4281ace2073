"""``%load_ext tideline``: notebook views of instants, recovery steps and settled instants.

Timelines, rows of epochs, runs and recoveries have notebook views without it.
"""

from __future__ import annotations

from typing import Any

from ingest.protocol.recovery import RecoveryStep, SettledInstant
from ingest.reports.recovery_html import settled_html, step_html
from timeline.history.html_views import instant_html
from timeline.instant import Instant


def load_ipython_extension(ipython: Any) -> None:
    """Called by IPython's ``%load_ext tideline``.

    Args:
        ipython: the running shell.
    """
    formatter = ipython.display_formatter.formatters["text/html"]
    formatter.for_type(Instant, instant_html)
    formatter.for_type(RecoveryStep, step_html)
    formatter.for_type(SettledInstant, settled_html)
