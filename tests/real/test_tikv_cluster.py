"""The TiKV-protocol cluster keeps acknowledged writes, and answers as TiKV does where crash recovery needs it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import grpc
import pytest
from google.protobuf.message import Message

from sinks.tikv import tikv_pb2 as pb
from sinks.tikv.channels import Tls
from sinks.tikv.client import Answer, Endpoint, TikvClient
from tests.conftest import or_absent
from tests.real import tikv_cluster
from tests.real.tikv_clients import connected
from tests.real.tikv_cluster import TikvCluster
from tests.waiting import wait_until

pytestmark = pytest.mark.real

TTL_MS = 60_000
BATCH = 4_000
TAnswer = TypeVar("TAnswer", bound=Answer)


def tls_of(cluster: TikvCluster) -> Tls | None:
    if cluster.certificates is None:
        return None
    client = str(cluster.certificates.client)
    return Tls(str(cluster.certificates.authority), client, client)


class Speaker:
    """Sends single requests of the protocol, also in orders that only a crash causes: the client prevents them."""

    def __init__(self, cluster: TikvCluster) -> None:
        self.client = TikvClient(Endpoint(tuple(cluster.pd), tls_of(cluster), patience_s=30))

    def close(self) -> None:
        self.client.close()

    def timestamp(self) -> int:
        return self.client.pd.timestamp()

    def prewrite(
        self,
        rows: Mapping[bytes, bytes],
        primary: bytes,
        start_ts: int,
        *,
        op: pb.Op = pb.Op.Put,
        ttl_ms: int = TTL_MS,
    ) -> Sequence[pb.KeyError]:
        """Prewrite keys of one region in one request; returns the errors of keys.

        Args:
            rows: key → value.
            primary: key of the primary.
            start_ts: of the transaction.
            op: Put or Insert.
            ttl_ms: of the locks.
        """
        mutations = [pb.Mutation(op=op, key=key, value=value) for key, value in rows.items()]

        def request(context: pb.Context) -> Message:
            return pb.PrewriteRequest(
                context=context,
                mutations=mutations,
                primary_lock=primary,
                start_version=start_ts,
                lock_ttl=ttl_ms,
                txn_size=len(mutations),
            )

        return self._ask(next(iter(rows)), "KvPrewrite", request, pb.PrewriteResponse).errors

    def commit(self, keys: Sequence[bytes], start_ts: int, commit_ts: int) -> pb.CommitResponse:
        def request(context: pb.Context) -> Message:
            return pb.CommitRequest(context=context, start_version=start_ts, keys=keys, commit_version=commit_ts)

        return self._ask(keys[0], "KvCommit", request, pb.CommitResponse)

    def resolve(self, key: bytes, start_ts: int, commit_ts: int) -> pb.ResolveLockResponse:
        """Resolve all locks of a transaction in the region of a key; commit_ts 0 rolls them back."""

        def request(context: pb.Context) -> Message:
            return pb.ResolveLockRequest(context=context, start_version=start_ts, commit_version=commit_ts)

        return self._ask(key, "KvResolveLock", request, pb.ResolveLockResponse)

    def locks(self, start: bytes, end: bytes, limit: int = 0, max_version: int | None = None) -> Sequence[bytes]:
        """The locked keys of one region.

        Args:
            start: first key, which selects the region.
            end: end key, exclusive.
            limit: most keys; 0: all.
            max_version: newest start timestamp of locks; None: now.
        """
        max_version = self.timestamp() if max_version is None else max_version

        def request(context: pb.Context) -> Message:
            return pb.ScanLockRequest(
                context=context, max_version=max_version, start_key=start, limit=limit, end_key=end
            )

        return [lock.key for lock in self._ask(start, "KvScanLock", request, pb.ScanLockResponse).locks]

    def get(self, key: bytes) -> pb.GetResponse:
        version = self.timestamp()
        return self._ask(
            key, "KvGet", lambda context: pb.GetRequest(context=context, key=key, version=version), pb.GetResponse
        )

    def write(self, rows: Mapping[bytes, bytes]) -> int:
        """Run a whole transaction in one region; returns its commit timestamp."""
        start_ts = self.timestamp()
        keys = list(rows)
        assert not self.prewrite(rows, keys[0], start_ts)
        commit_ts = self.timestamp()
        assert not self.commit(keys, start_ts, commit_ts).HasField("error")
        return commit_ts

    def _ask(self, key: bytes, name: str, make: Callable[[pb.Context], Message], answer: type[TAnswer]) -> TAnswer:
        return self.client.ask(key, name, make, answer, self.client.backoff())


@pytest.fixture
def speaker(tikv: TikvCluster) -> Iterator[Speaker]:
    with closing(Speaker(tikv)) as speaker:
        yield speaker


@pytest.fixture
def prefix(request: pytest.FixtureRequest) -> bytes:
    """Prefix of the keys of one test."""
    return f"t-{request.node.name}-".encode()


def read(cluster: TikvCluster, prefix: bytes) -> dict[bytes, bytes]:
    """All rows below a prefix, as another client reads them now."""
    client = connected(cluster.pd)
    snapshot = client.snapshot(client.current_timestamp(), pessimistic=False)
    return dict(snapshot.scan(prefix, end=prefix + b"\xff", limit=1_000_000))


def test_killed_store_comes_back_with_rows_and_locks(tikv: TikvCluster, speaker: Speaker, prefix: bytes) -> None:
    row, held = prefix + b"row", prefix + b"held"
    other = connected(tikv.pd)
    transaction = other.begin(pessimistic=False)
    transaction.put(row, b"value")
    transaction.commit()
    start_ts = speaker.timestamp()
    assert not speaker.prewrite({held: b"prewritten"}, held, start_ts)
    tikv.store.kill()
    tikv.store.start()
    assert speaker.get(row).value == b"value"
    assert speaker.locks(prefix, prefix + b"~") == [held]
    assert not speaker.commit([held], start_ts, speaker.timestamp()).HasField("error")
    assert read(tikv, prefix) == {row: b"value", held: b"prewritten"}


def test_secondaries_of_a_committed_transaction_outlive_the_store(
    tikv: TikvCluster, speaker: Speaker, prefix: bytes
) -> None:
    rows = {prefix + b"%03d" % number: b"value" for number in range(200)}
    primary = min(rows)
    start_ts = speaker.timestamp()
    # tikv-client resolves a lock only past its TTL, committed or not.
    assert not speaker.prewrite(rows, primary, start_ts, ttl_ms=1)
    assert not speaker.commit([primary], start_ts, speaker.timestamp()).HasField("error")
    tikv.store.kill()
    tikv.store.start()
    assert read(tikv, prefix) == rows


def test_pd_that_was_killed_knows_its_regions_and_goes_on_in_time(
    tikv: TikvCluster, speaker: Speaker, prefix: bytes
) -> None:
    regions = tikv.regions()
    committed_ts = speaker.write({prefix: b"value"})
    tikv.pd_process.kill()
    tikv.pd_process.start()
    assert tikv.regions() == regions
    assert speaker.timestamp() > committed_ts
    assert read(tikv, prefix) == {prefix: b"value"}


def test_all_of_it_starts_again_over_its_data(tikv: TikvCluster, speaker: Speaker, prefix: bytes) -> None:
    speaker.write({prefix: b"value"})
    tikv.stop()
    assert not any(process.is_running for process in tikv.processes)
    tikv.start()
    assert read(tikv, prefix) == {prefix: b"value"}


def test_large_transaction_is_resolved_by_one_request(speaker: Speaker, prefix: bytes) -> None:
    keys = [prefix + b"%08d" % number for number in range(200_000)]
    start_ts = speaker.timestamp()
    for first in range(0, len(keys), BATCH):
        batch = dict.fromkeys(keys[first : first + BATCH], b"v" * 300)
        assert not speaker.prewrite(batch, keys[0], start_ts)
    commit_ts = speaker.timestamp()
    assert not speaker.commit(keys[:1], start_ts, commit_ts).HasField("error")
    assert not speaker.resolve(keys[0], start_ts, commit_ts).HasField("error")
    assert not speaker.locks(prefix, prefix + b"~")
    assert {speaker.get(key).value for key in (keys[0], keys[100_000], keys[-1])} == {b"v" * 300}


def test_split_regions_cover_all_keys_and_outlive_store_and_pd(tmp_path: Path) -> None:
    with or_absent(), tikv_cluster.running(tmp_path, region_bytes=128 << 10) as cluster:
        before = len(cluster.regions())
        rows = {b"t%06d" % number: b"v" * 200 for number in range(4_000)}
        with closing(Speaker(cluster)) as speaker:
            speaker.write(rows)
        wait_until(lambda: len(cluster.regions()) > before + 2 and cluster.is_whole(), "regions are split")
        for member in (cluster.store, cluster.pd_process):
            member.kill()
            member.start()
        assert len(cluster.regions()) > before + 2
        assert read(cluster, b"t") == rows


def test_lost_pd_leader_is_followed_by_another_one(tmp_path: Path) -> None:
    with or_absent(), tikv_cluster.running(tmp_path, pds=3) as cluster, closing(Speaker(cluster)) as speaker:
        committed_ts = speaker.write({b"t-kept": b"value"})
        lost = cluster.pd_leader()
        lost.kill()
        assert speaker.timestamp() > committed_ts
        assert cluster.pd_leader() is not lost
        # The store reports its regions to the new leader.
        wait_until(cluster.is_whole, "the new leader knows all regions")
        assert speaker.get(b"t-kept").value == b"value"
        lost.start()
        cluster.move_pd_leader()
        wait_until(cluster.is_whole, "the new leader knows all regions")


def test_repeated_prewrite_locks_the_keys_that_are_new(speaker: Speaker, prefix: bytes) -> None:
    first, second = prefix + b"1", prefix + b"2"
    start_ts = speaker.timestamp()
    assert not speaker.prewrite({first: b"a"}, first, start_ts)
    assert not speaker.prewrite({first: b"a", second: b"b"}, first, start_ts)
    assert speaker.locks(prefix, prefix + b"~") == [first, second]


def test_late_prewrite_of_a_key_that_was_rolled_back_is_refused(speaker: Speaker, prefix: bytes) -> None:
    primary, secondary = prefix + b"1", prefix + b"2"
    start_ts = speaker.timestamp()
    assert not speaker.prewrite({primary: b"a", secondary: b"b"}, primary, start_ts)
    assert not speaker.resolve(primary, start_ts, 0).HasField("error")
    for key in (primary, secondary):
        (error,) = speaker.prewrite({key: b"late"}, primary, start_ts)
        assert error.conflict.conflict_commit_ts == start_ts
    assert not speaker.locks(prefix, prefix + b"~")


def test_commit_of_what_is_committed_is_told_so_whatever_came_later(speaker: Speaker, prefix: bytes) -> None:
    start_ts = speaker.timestamp()
    assert not speaker.prewrite({prefix: b"first"}, prefix, start_ts)
    early_ts, commit_ts = speaker.timestamp(), speaker.timestamp()
    assert not speaker.commit([prefix], start_ts, commit_ts).HasField("error")
    speaker.write({prefix: b"second"})
    for repeated_ts in (early_ts, commit_ts, speaker.timestamp()):
        assert not speaker.commit([prefix], start_ts, repeated_ts).HasField("error")
    assert speaker.get(prefix).value == b"second"


def test_commit_without_a_lock_is_refused(speaker: Speaker, prefix: bytes) -> None:
    start_ts = speaker.timestamp()
    assert speaker.commit([prefix], start_ts, speaker.timestamp()).HasField("error")
    assert speaker.get(prefix).not_found


def test_insert_of_an_existing_key_is_refused(speaker: Speaker, prefix: bytes) -> None:
    speaker.write({prefix: b"there"})
    (error,) = speaker.prewrite({prefix: b"again"}, prefix, speaker.timestamp(), op=pb.Op.Insert)
    assert error.already_exist.key == prefix


def test_locks_are_found_by_range_limit_and_version(speaker: Speaker, prefix: bytes) -> None:
    keys = [prefix + b"%d" % number for number in range(5)]
    start_ts = speaker.timestamp()
    assert not speaker.prewrite(dict.fromkeys(keys, b"v"), keys[0], start_ts)
    assert speaker.locks(keys[1], keys[4]) == keys[1:4]
    assert speaker.locks(keys[1], keys[4], limit=2) == keys[1:3]
    assert speaker.locks(keys[0], prefix + b"~", max_version=start_ts) == keys
    assert speaker.locks(keys[0], prefix + b"~", max_version=start_ts - 1) == []


def test_value_stays_as_it_is_below_a_key_that_looks_like_a_table_row(tikv: TikvCluster, speaker: Speaker) -> None:
    rows = {b"t12345678_record-of-no-table": b"\x00\x01", b"t12345678_rat-of-no-table": b"\x80\x80"}
    speaker.write(rows)
    assert read(tikv, b"t12345678_r") == rows


def test_heartbeat_of_no_transaction_says_so(speaker: Speaker, prefix: bytes) -> None:
    start_ts = speaker.timestamp()

    def request(context: pb.Context) -> Message:
        return pb.TxnHeartBeatRequest(
            context=context, primary_lock=prefix, start_version=start_ts, advise_lock_ttl=TTL_MS
        )

    backoff = speaker.client.backoff()
    answer = speaker.client.ask(prefix, "KvTxnHeartBeat", request, pb.TxnHeartBeatResponse, backoff)
    assert answer.error.txn_not_found.start_ts == start_ts


def test_key_of_another_region_is_refused(speaker: Speaker, prefix: bytes) -> None:
    target = speaker.client.target(b"a-key-below-t", speaker.client.backoff())
    version = speaker.timestamp()
    request = pb.GetRequest(context=target.context, key=prefix, version=version)
    answer = speaker.client.start(target, "KvGet", request.SerializeToString(), pb.GetResponse).result()
    assert answer.region_error.key_not_in_region.key == prefix


def test_what_is_not_served_is_refused_and_not_acknowledged(speaker: Speaker, prefix: bytes) -> None:
    target = speaker.client.target(prefix, speaker.client.backoff())
    with pytest.raises(grpc.RpcError, match="UNIMPLEMENTED"):
        speaker.client.start(target, "RawPut", b"", pb.GetResponse).result()


def test_cluster_with_certificates_takes_and_gives_rows(tikv_tls: TikvCluster, prefix: bytes) -> None:
    with closing(Speaker(tikv_tls)) as speaker:
        speaker.write({prefix: b"value"})
        for member in (tikv_tls.store, tikv_tls.pd_process):
            member.kill()
            member.start()
        assert speaker.get(prefix).value == b"value"


@pytest.mark.parametrize("member", ["store", "pd_process"])
def test_member_refuses_a_client_without_a_certificate(tikv_tls: TikvCluster, member: str) -> None:
    assert tikv_tls.certificates is not None
    address = getattr(tikv_tls, member).address
    trust = tikv_tls.certificates.authority.read_bytes()
    client = tikv_tls.certificates.client.read_bytes()
    with (
        grpc.secure_channel(address, grpc.ssl_channel_credentials(trust)) as channel,
        pytest.raises(grpc.FutureTimeoutError),
    ):
        grpc.channel_ready_future(channel).result(timeout=3)
    with grpc.secure_channel(address, grpc.ssl_channel_credentials(trust, client, client)) as channel:
        grpc.channel_ready_future(channel).result(timeout=30)
