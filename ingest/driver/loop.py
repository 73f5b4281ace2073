"""The epoch loop: take the lease, recover, then plan and ingest epoch after epoch until the run ends.

`ingest.driver.next_action` decides, `ingest.driver.active_writer` acts and returns the evidence.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import assert_never

from ingest.config.models import JobConfig
from ingest.driver.active_writer import ActiveWriter
from ingest.driver.build import TimelineHandle, require_whole
from ingest.driver.exit_message import last_error
from ingest.driver.next_action import (
    EndRun,
    EndWithError,
    IngestEpoch,
    LoopEvidence,
    LoopState,
    Pause,
    PlanEpoch,
    RecoverPending,
    Started,
    next_action,
)
from ingest.driver.run_resources import RunResources
from ingest.driver.stores import probe_stores
from ingest.driver.summary import Mode, Summary
from ingest.execution.runner import Runner
from ingest.protocol.events import EventBus, Fenced, Leased, Listener, Renewed
from timeline.errors import ConfigError, FencedError, StoppedError
from timeline.failpoints import reach
from timeline.lease import LeaseObserver, WriterLease


class IngestLoop:
    """One run of a job as its timeline's writer."""

    def __init__(
        self,
        opened: TimelineHandle,
        open_runner: Callable[[], Runner],
        *,
        mode: Mode,
        stop: threading.Event,
        listeners: Sequence[Listener] = (),
        accept_loss: bool = False,
    ) -> None:
        """Prepare a run; nothing is touched before `run`.

        Args:
            opened: the job's timeline.
            open_runner: starts the engine; called once, when records are first ingested or written again.
            mode: when the run ends by itself.
            stop: set from outside to end the run.
            listeners: called with every event, in this order; a listener cannot fail the run.
            accept_loss: go on behind records that the source no longer has, and record the hole.
        """
        self._opened = opened
        self._mode = mode
        self._stop = stop
        self._notify = EventBus(listeners)
        self._writers = RunResources(open_runner, stop, accept_loss=accept_loss)

    def run(self) -> Summary:
        """Ingest as the mode says (once: until the source has no new records), or until stopped.

        Raises:
            ConfigError: a store does not create objects exclusively, or a target takes the whole source as one epoch
                and this run is continuous; nothing was touched.
            WriterBusyError: another process writes this timeline.
            TargetBusyError: another writer kept writing the same rows.
            TidelineError: any other error that ended the run; its message says what to do.
        """
        if self._mode is Mode.CONTINUOUS:
            _refuse_whole_source(self._opened.config)
        require_whole(self._opened)
        probe_stores(self._opened)
        try:
            lease = self._opened.take_lease(LeaseObserver(self._opened.store, self._opened.retry), sleep=self._sleep)
        except StoppedError as stopped:
            return Summary(is_stopped=True, exit_message=str(stopped))
        with self._ending(lease):
            lease.start_heartbeats(lambda is_done: self._notify(Renewed(is_done)))
            self._notify(Leased(lease))
            reach("lease-taken")
            return self._run(lease)

    def _run(self, lease: WriterLease) -> Summary:
        config = self._opened.config
        state = LoopState(self._mode, config.epoch.interval, config.takes_whole_source)
        evidence: LoopEvidence = Started(self._opened.identity is not None)
        with ActiveWriter(self._opened, lease, self._writers, self._stop, self._notify) as writer:
            while True:
                state, action = next_action(state, evidence)
                match action:
                    case RecoverPending():
                        evidence = writer.recover(action)
                    case PlanEpoch():
                        evidence = writer.plan(self._mode)
                    case IngestEpoch():
                        evidence = writer.ingest(is_replay=self._mode is Mode.REJECTED)
                    case Pause():
                        evidence = writer.pause(action)
                    case EndRun():
                        return writer.ended(action)
                    case EndWithError():
                        raise writer.given_up_for
                    case _:
                        assert_never(action)

    def _sleep(self, wait_s: float) -> None:
        if self._stop.wait(wait_s):
            raise StoppedError("another writer's lease was waited for")

    @contextmanager
    def _ending(self, lease: WriterLease) -> Iterator[None]:
        """Stop the engine, then release the lease with the error that ended the run, if any."""
        ended_by = ""
        try:
            yield
        except Exception as error:
            if isinstance(error, FencedError):
                self._notify(Fenced(error))
            ended_by = last_error(error)
            raise
        finally:
            try:
                self._writers.close()
            finally:
                lease.release(ended_by)


def _refuse_whole_source(config: JobConfig) -> None:
    for number, target in enumerate(config.targets):
        if target.takes_whole_source:
            raise ConfigError(
                f"targets[{number}] ({target.type}) takes all that the source has in one transaction, so the job has "
                "an end: run it with --once, or let the target commit epoch by epoch (transaction: checkpoint)"
            )
