"""Timestamps from PD: one stream for all threads, several requests in flight, many timestamps in each.

::

    callers ─► pending ─(one request for all that wait)─► under way ─(answers come in order)─► callers

A broken stream fails all waiting callers; they retry through a new stream.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import TypeAlias

import grpc
from google.protobuf.message import Message

from sinks.tikv import tikv_pb2 as pb
from sinks.tikv.channels import AnswerStream, rpc_error_text
from timeline.units import count

_LOGICAL_BITS = 18
_LARGEST_BATCH = 10_000
_MOST_UNDER_WAY = 4
"""Requests in flight: enough to hide the round trip to PD; the next request carries all that wait meanwhile."""


OpenStream: TypeAlias = Callable[[Iterator[Message]], AnswerStream[pb.TsoResponse]]


def physical_ms(timestamp: int) -> int:
    """The wall-clock part of a timestamp, in milliseconds since 1970."""
    return timestamp >> _LOGICAL_BITS


def _timestamps(answer: pb.TsoResponse) -> range:
    """The timestamps of one answer, which holds the last of them.

    PDs that each issue timestamps of their own (``enable-local-tso``) write their number into the last
    ``suffix_bits`` bits, so one PD's timestamps are ``1 << suffix_bits`` apart. Source: PD,
    ``client/tso_dispatcher.go`` (`AddLogical`).
    """
    last = (answer.timestamp.physical << _LOGICAL_BITS) + answer.timestamp.logical
    step = 1 << answer.timestamp.suffix_bits
    return range(last - (answer.count - 1) * step, last + 1, step)


class TsoStream:
    """One stream of timestamps; not usable after it breaks."""

    def __init__(self, header: pb.RequestHeader, open_stream: OpenStream) -> None:
        """Open the stream.

        Args:
            header: header of every request.
            open_stream: sends the requests to PD's leader.
        """
        self._header = header
        self._changed = threading.Condition()
        self._pending: list[Future[int]] = []
        self._under_way: deque[list[Future[int]]] = deque()
        self._broken: str | None = None
        self._answers = open_stream(self._requests())
        threading.Thread(target=self._receive, name="tikv-tso", daemon=True).start()

    @property
    def is_broken(self) -> bool:
        """Whether the stream is broken or closed."""
        return self._broken is not None

    def ask(self) -> Future[int]:
        """A timestamp later than all issued before; fails with `ConnectionError` where the stream breaks."""
        future: Future[int] = Future()
        with self._changed:
            if self._broken is not None:
                future.set_exception(ConnectionError(self._broken))
            else:
                self._pending.append(future)
                self._changed.notify_all()
        return future

    def close(self) -> None:
        """Close the stream."""
        self._break("closed")
        self._answers.cancel()

    def _requests(self) -> Iterator[Message]:
        while True:
            with self._changed:
                while not self._may_ask and self._broken is None:
                    self._changed.wait()
                if self._broken is not None:
                    return
                batch, self._pending = self._pending[:_LARGEST_BATCH], self._pending[_LARGEST_BATCH:]
                self._under_way.append(batch)
            yield pb.TsoRequest(header=self._header, count=len(batch))

    @property
    def _may_ask(self) -> bool:
        return bool(self._pending) and len(self._under_way) < _MOST_UNDER_WAY

    def _receive(self) -> None:
        try:
            for answer in self._answers:
                if answer.header.error.message:
                    raise ConnectionError(f"PD: {answer.header.error.message}")
                with self._changed:
                    batch = self._under_way[0] if self._under_way else []
                    if not batch or answer.count != len(batch):
                        raise ConnectionError(
                            f"PD gave {count(answer.count, 'timestamp')} where {len(batch)} were asked for"
                        )
                    self._under_way.popleft()
                    self._changed.notify_all()
                for future, timestamp in zip(batch, _timestamps(answer), strict=True):
                    future.set_result(timestamp)
            self._break("PD ended the stream of timestamps")
        except grpc.RpcError as error:
            self._break(f"the stream of timestamps broke: {rpc_error_text(error)}")
        except ConnectionError as error:
            self._break(str(error))

    def _break(self, why: str) -> None:
        with self._changed:
            if self._broken is None:
                self._broken = why
            waiting = [*self._pending, *(future for batch in self._under_way for future in batch)]
            self._pending.clear()
            self._under_way.clear()
            self._changed.notify_all()
        for future in waiting:
            if not future.done():
                future.set_exception(ConnectionError(why))
