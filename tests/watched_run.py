"""Runs of a job's loop in this process with the listeners of its job file, and scrapes of its metrics."""

from __future__ import annotations

import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from prometheus_client.openmetrics.parser import text_string_to_metric_families

from ingest.config.load import load_config
from ingest.driver.build import open_timeline
from ingest.driver.loop import IngestLoop
from ingest.driver.summary import Mode, Summary
from ingest.execution.runner import LocalRunner
from ingest.listeners.run_listeners import listening
from ingest.protocol.events import Event, Listener
from timeline import failpoints

OPEN_METRICS = "application/openmetrics-text"


@dataclass
class Scraped:
    """Samples by name and labels (but ``job``), and the type of each family."""

    values: dict[tuple[str, frozenset[tuple[str, str]]], float] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)
    jobs: set[str | None] = field(default_factory=set)

    def __call__(self, name: str, **labels: str) -> float | None:
        """The value of one sample; None where there is none."""
        return self.values.get((f"tideline_{name}", frozenset(labels.items())))

    @property
    def names(self) -> set[str]:
        return {name for name, _ in self.values}

    def labelled(self, name: str, label: str) -> dict[str, float]:
        """Values of all samples of a name, by one of their labels."""
        whole = f"tideline_{name}"
        return {dict(labels)[label]: value for (of, labels), value in self.values.items() if of == whole}


def scrape(url: str) -> Scraped:
    """Scrape as Prometheus does, and read the response with the format's own parser."""
    request = urllib.request.Request(url, headers={"Accept": f"{OPEN_METRICS}; version=1.0.0"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert answer.headers["Content-Type"].startswith(OPEN_METRICS)
        return parsed(answer.read().decode())


def parsed(text: str) -> Scraped:
    """Samples and types of a response."""
    scraped = Scraped()
    for family in text_string_to_metric_families(text):  # type: ignore[no-untyped-call]
        scraped.types[family.name] = family.type
        for sample in family.samples:
            labels = dict(sample.labels)
            scraped.jobs.add(labels.pop("job", None))
            scraped.values[(sample.name, frozenset(labels.items()))] = sample.value
    return scraped


@dataclass
class WatchedRun:
    """A job file, and one run of it."""

    file: Path
    url: str = ""
    summary: Summary | None = None
    error: Exception | None = None
    events: list[Event] = field(default_factory=list)

    @property
    def scraped(self) -> Scraped:
        return scrape(self.url)


At: TypeAlias = Callable[[str, WatchedRun], None]


def fails_at(point: str) -> At:
    """A callback that ends a run with an unforeseen error at a crash point."""

    def reached(passed: str, run: WatchedRun) -> None:
        if passed == point:
            raise RuntimeError(point)

    return reached


@contextmanager
def run_watched(
    file: Path,
    at: At | None = None,
    *,
    mode: Mode = Mode.ONCE,
    more: tuple[Listener, ...] = (),
    stop: threading.Event | None = None,
) -> Iterator[WatchedRun]:
    """Run a job to its end; inside of the context its endpoint still answers.

    Args:
        file: the job file.
        at: called at each crash point of the protocol.
        mode: as for `tideline run`.
        more: further listeners.
        stop: ends the run.
    """
    config = load_config(file)
    run = WatchedRun(file)
    with listening(config) as watchers:
        run.url = watchers.metrics_url or ""
        loop = IngestLoop(
            open_timeline(config),
            LocalRunner,
            mode=mode,
            stop=stop or threading.Event(),
            listeners=(run.events.append, *more, *watchers.listeners),
        )
        if at is not None:
            hook = at
            failpoints.arm(lambda point: hook(point, run))
        try:
            run.summary = loop.run()
        except Exception as error:
            run.error = error
        finally:
            failpoints.arm(None)
        yield run
