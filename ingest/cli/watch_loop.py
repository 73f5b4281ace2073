"""`tideline watch`: frames on the screen, or as lines, until it is interrupted."""

from __future__ import annotations

import json
import logging
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import typer
from rich.console import Console
from rich.live import Live

from ingest.cli.console import output
from ingest.config.load import load_config
from ingest.driver.build import TimelineHandle, open_timeline
from ingest.driver.losses import require_known
from ingest.reports.offsets import open_job_source
from ingest.reports.watch_screen import frame_json, watch_screen
from ingest.reports.watching import LAG_EVERY_S, LagMeter, Watcher
from ingest.sources.lag import LagProbe
from timeline.errors import ConfigError, InvariantError, StoreUnavailableError, TargetRefusedError
from timeline.history.rows import as_json as json_word
from timeline.stores.base import Retry
from timeline.units import parse_duration

_SHORTEST_S = 0.1
_RETRY = Retry(attempts=2, deadline_s=5.0)
"""Few retries: a store that does not answer is shown at once, and the next frame asks again."""


def watch_job(conf: Path, *, interval: str, once: bool, as_json: bool) -> None:
    """Show a job until the process is interrupted.

    Args:
        conf: its job file.
        interval: time between two frames.
        once: one frame only.
        as_json: frames as JSON, one a line.

    Raises:
        ConfigError: the job file or the interval is wrong.
        StoreUnavailableError: the timeline's store does not answer at the start.
    """
    interval_s = _interval_s(interval)
    opened = open_timeline(load_config(conf))
    opened = replace(opened, retry=_RETRY)
    logging.getLogger().addHandler(logging.NullHandler())  # a warning would be printed across the screen
    warning = _not_known(opened)
    meter = LagMeter(opened, open_job_source(opened))
    console = output()
    is_live = console.is_terminal and not as_json
    if once or not (is_live or as_json):
        watcher = Watcher(opened, meter, warning=warning)
        if as_json:
            _print_json(watcher)
        else:
            console.print(watch_screen(watcher.look(), console.width), highlight=False)
        return
    watcher = Watcher(opened, LagProbe(meter.latest, every_s=LAG_EVERY_S), warning=warning)
    if is_live:
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # the terminal is restored first
        watch_live(watcher, console, interval_s)
    while True:
        _print_json(watcher)
        time.sleep(interval_s)


def _not_known(opened: TimelineHandle) -> str:
    """Reason why a start of the job would be refused now; "" where it would not."""
    try:
        require_known(opened)
    except (InvariantError, TargetRefusedError) as error:
        return str(error)
    except StoreUnavailableError:
        pass  # each frame says so
    return ""


def watch_live(
    watcher: Watcher, console: Console, interval_s: float, sleep: Callable[[float], None] = time.sleep
) -> None:
    """Show frame after frame on a terminal until the process is interrupted; the terminal is left as it was.

    Args:
        watcher: reads the frames.
        console: the terminal.
        interval_s: time between two frames.
        sleep: waits that time.
    """
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            frame = watcher.look()
            live.update(watch_screen(frame, console.width, console.height, interval_s), refresh=True)
            sleep(interval_s)


def _print_json(watcher: Watcher) -> None:
    typer.echo(json.dumps(frame_json(watcher.look()), default=json_word))


def _interval_s(text: str) -> float:
    try:
        interval_s = parse_duration(text)
    except ValueError as error:
        raise ConfigError(f"--interval {text}: {error}") from None
    if interval_s < _SHORTEST_S:
        raise ConfigError(f"--interval {text}: {_SHORTEST_S} s or more is allowed; every frame asks the store")
    return interval_s
