"""Listeners that a job file configures: metrics with their endpoint, and callbacks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from ingest.config.load import JobConfig
from ingest.driver.build import open_source
from ingest.protocol.events import Listener


@dataclass(frozen=True)
class RunListeners:
    """Listeners of a run.

    Attributes:
        listeners: receive every event.
        metrics_url: URL of the metrics endpoint; None where the job file configures none.
    """

    listeners: tuple[Listener, ...] = ()
    metrics_url: str | None = None


@contextmanager
def listening(config: JobConfig, *, accept_loss: bool = False) -> Iterator[RunListeners]:
    """Start the listeners that the job file configures, and end them with the context.

    Args:
        config: the job file.
        accept_loss: whether the run goes on behind lost records, and so its lag.

    Raises:
        ConfigError: the metrics' port is taken, or a command's program does not exist; nothing was written.
    """
    with ExitStack() as ends:
        listeners: list[Listener] = []
        metrics = url = None
        if config.metrics.port is not None:
            # Imported on demand: a job without metrics or callbacks does not pay for their libraries.
            from ingest.listeners.metrics.job_metrics import JobMetrics
            from ingest.listeners.metrics.lag import LagWatch
            from ingest.listeners.metrics.server import serve

            lag = LagWatch(lambda: open_source(config, accept_loss=accept_loss).ends)
            ends.callback(lag.close)
            metrics = JobMetrics(config.name, lag)
            url = ends.enter_context(serve(metrics.registry, config.metrics.host, config.metrics.port))
            listeners.append(metrics)
        if config.on_commit:
            from ingest.listeners.on_commit import delivering

            listeners.append(ends.enter_context(delivering(config.name, config.on_commit, metrics)))
        yield RunListeners(tuple(listeners), url)
