"""Two ways to write one large transaction from one process: plain protobuf over gRPC, and TiKV's client for the JVM."""

from __future__ import annotations

import bisect
import contextlib
import struct
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import grpc
from google.protobuf.message import Message

from bench.tikv_ways import Clock, Load, pairs
from sinks.tikv import tikv_pb2 as pb
from sinks.tikv.client import Endpoint, connection
from sinks.tikv.pd import CachedRegion
from tests.real.toolchain import Artifact, fetch_jars

TAnswer = TypeVar("TAnswer", pb.PrewriteResponse, pb.CommitResponse)

PREWRITE_ROWS = 2048
COMMIT_ROWS = 4096
_LOCK_TTL_MS = 60_000
_MESSAGE_BYTES = 64 << 20
_JARS = (Artifact("org.tikv", "tikv-client-java", "3.3.5"), Artifact("org.slf4j", "slf4j-nop", "1.7.36"))
_COMMITTER = Path(__file__).with_name("TwoPhaseWriter.java")


class LargeBatches:
    """Protobuf messages made row by row, one request after another, keys sorted; commits list all keys."""

    def __init__(self) -> None:
        """Connect to nothing yet."""
        self._channels: dict[str, grpc.Channel] = {}
        self._pairs: dict[bytes, bytes] = {}

    def connect(self, pd: Sequence[str]) -> None:
        """See Way."""
        self._client = connection(Endpoint(tuple(pd)))

    def get_ready(self, load: Load) -> None:
        """See Way."""
        self._pairs = {}
        for keys, values in pairs(load, load.start, load.until):
            self._pairs.update(zip(keys, values, strict=True))

    def write(self, load: Load) -> Mapping[str, float]:
        """See Way."""
        clock, start_ts = Clock(), self._client.pd.timestamp()
        # Sorted, as every client of TiKV sends keys: in the order of the source the store needs twice as long.
        primary, *others = sorted(self._pairs)
        self._prewrite([primary], primary, start_ts)
        self._prewrite(others, primary, start_ts)
        clock.lap("prewrite")
        commit_ts = self._client.pd.timestamp()
        self._commit([primary], start_ts, commit_ts)
        self._commit(others, start_ts, commit_ts)
        clock.lap("commit, settle")
        return clock.laps

    def close(self) -> None:
        """See Way."""
        for channel in self._channels.values():
            channel.close()

    def _prewrite(self, keys: Sequence[bytes], primary: bytes, start_ts: int) -> None:
        def write(place: CachedRegion, batch: Sequence[bytes]) -> bool:
            request = pb.PrewriteRequest(
                context=_context(place),
                mutations=[pb.Mutation(op=pb.Op.Put, key=key, value=self._pairs[key]) for key in batch],
                primary_lock=primary,
                start_version=start_ts,
                lock_ttl=_LOCK_TTL_MS,
                txn_size=len(self._pairs),
            )
            answer = self._ask(place, "KvPrewrite", request, pb.PrewriteResponse)
            assert not answer.errors, answer
            return not answer.HasField("region_error")

        self._by_region(keys, PREWRITE_ROWS, write)

    def _commit(self, keys: Sequence[bytes], start_ts: int, commit_ts: int) -> None:
        def write(place: CachedRegion, batch: Sequence[bytes]) -> bool:
            request = pb.CommitRequest(
                context=_context(place), keys=batch, start_version=start_ts, commit_version=commit_ts
            )
            answer = self._ask(place, "KvCommit", request, pb.CommitResponse)
            assert not answer.HasField("error"), answer
            return not answer.HasField("region_error")

        self._by_region(keys, COMMIT_ROWS, write)

    def _by_region(
        self, keys: Iterable[bytes], rows: int, write: Callable[[CachedRegion, Sequence[bytes]], bool]
    ) -> None:
        """Write batches of one region each; repeat those of a region that was split meanwhile."""
        left = keys
        while left:
            places = sorted(self._client.pd.regions(b"", b"", 10_000), key=lambda place: place.start)
            starts = [place.start for place in places]
            groups: list[list[bytes]] = [[] for _ in places]
            for key in left:
                groups[bisect.bisect_right(starts, key) - 1].append(key)
            again: list[bytes] = []
            for place, group in zip(places, groups, strict=True):
                for at in range(0, len(group), rows):
                    batch = group[at : at + rows]
                    if not write(place, batch):
                        again += batch
            left = again

    def _ask(self, place: CachedRegion, name: str, request: Message, answer: type[TAnswer]) -> TAnswer:
        address = self._client.pd.store_address((place.leader or place.peers[0]).store_id)
        assert address is not None, f"region {place.id} is nowhere"
        if address not in self._channels:
            limits = [("grpc.max_send_message_length", _MESSAGE_BYTES), ("grpc.enable_http_proxy", 0)]
            self._channels[address] = grpc.insecure_channel(address, limits)
        call: Callable[..., TAnswer] = self._channels[address].unary_unary(
            f"/tikvpb.Tikv/{name}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=answer.FromString,
        )
        return call(request, timeout=60)


def _context(place: CachedRegion) -> pb.Context:
    conf_ver, version = place.epoch
    epoch = pb.RegionEpoch(conf_ver=conf_ver, version=version)
    return pb.Context(region_id=place.id, region_epoch=epoch, peer=place.leader or place.peers[0])


class JvmCommitter:
    """`org.tikv.txn.TwoPhaseCommitter` in a long-running JVM: two threads, one committer each, one transaction.

    TiSpark and TiBigData do the same in two tasks, which adds Spark's or Flink's own cost.
    """

    def __init__(self) -> None:
        """Start the JVM.

        Raises:
            MissingToolchainError: there is no Maven to fetch the client with.
        """
        jars = fetch_jars("tikv-client-java", _JARS, with_dependencies=True)
        self._folder = tempfile.TemporaryDirectory()
        command = ["java", "-Xmx3g", "-cp", f"{jars}/*", str(_COMMITTER)]
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True
        )

    def connect(self, pd: Sequence[str]) -> None:
        """See Way."""
        self._tell(f"connect {','.join(pd)}")

    def get_ready(self, load: Load) -> None:
        """See Way: the JVM reads keys and values into its memory."""
        rows = Path(self._folder.name) / "rows"
        with rows.open("wb") as file:
            for keys, values in pairs(load, load.start, load.until):
                for key, value in zip(keys, values, strict=True):
                    file.write(struct.pack(">i", len(key)) + key + struct.pack(">i", len(value)) + value)
        self._tell(f"load {rows} {load.rows}")

    def write(self, load: Load) -> Mapping[str, float]:
        """See Way."""
        prewrite_s, commit_s = self._tell("write").split()
        return {"prewrite": float(prewrite_s), "commit, settle": float(commit_s)}

    def close(self) -> None:
        """See Way."""
        with contextlib.suppress(BrokenPipeError):
            self._process.communicate(timeout=30)
        self._errors.close()
        self._folder.cleanup()

    def _tell(self, command: str) -> str:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("done"):
                return line.removeprefix("done").strip()
        self._errors.seek(0)
        raise RuntimeError(f"the JVM ended at {command!r}: {self._errors.read()[-2000:].decode(errors='replace')}")
