"""An error of a store leads to the right next request, or within bounded time to a message that names the error."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing

import pyarrow as pa
import pytest
from google.protobuf.message import Message
from grpc import StatusCode

from sinks.tikv import tikv_pb2 as pb
from sinks.tikv.backoff import Backoff, RetryReason
from sinks.tikv.client import Endpoint, TikvClient
from sinks.tikv.mutations import Mutations
from sinks.tikv.records import scan
from sinks.tikv.settling import Span, locks_in, settlings
from sinks.tikv.transaction import Transaction, commit, prewrite
from tests.unit.sinks.tikv.scripted_cluster import Reply, Request, ScriptedCluster, peer, region, scripted
from tests.unit.sinks.tikv.test_backoff import Clock
from timeline.errors import (
    ConfigError,
    InvariantError,
    ReplayNeededError,
    StoreUnavailableError,
    TargetBusyError,
    TargetRefusedError,
)

KEY = b"t-key"
LIMIT_S = 20.0


@pytest.fixture
def cluster() -> Iterator[ScriptedCluster]:
    with scripted() as cluster:
        yield cluster


@pytest.fixture
def client(cluster: ScriptedCluster) -> Iterator[TikvClient]:
    with closing(TikvClient(Endpoint(tuple(cluster.leaders), patience_s=LIMIT_S))) as client:
        yield client


@pytest.fixture
def clock() -> Clock:
    return Clock()


def get(client: TikvClient, backoff: Backoff, key: bytes = KEY) -> pb.GetResponse:
    return client.ask(
        key, "KvGet", lambda context: pb.GetRequest(context=context, key=key, version=1), pb.GetResponse, backoff
    )


def refused(**error: object) -> pb.GetResponse:
    return pb.GetResponse(region_error=pb.RegionError(**error))  # type: ignore[arg-type]


NO_LEADER = refused(not_leader=pb.NotLeader(region_id=1))
LED_BY_2 = refused(not_leader=pb.NotLeader(region_id=1, leader=peer(1, 2)))
BUSY = refused(server_is_busy=pb.ServerIsBusy(reason="full", backoff_ms=700))
STALE = refused(stale_command=pb.StaleCommand())
OTHER_STORE = refused(store_not_match=pb.StoreNotMatch(request_store_id=1, actual_store_id=9))
NO_REGION = refused(region_not_found=pb.RegionNotFound(region_id=1))
NO_WORDS = refused(message="a kind of error that is newer than this client")


def test_leader_that_a_store_names_is_asked_without_asking_pd(
    cluster: ScriptedCluster, client: TikvClient, clock: Clock
) -> None:
    cluster.says("KvGet", LED_BY_2)
    get(client, clock.backoff(LIMIT_S))
    get(client, clock.backoff(LIMIT_S))
    assert [request.store for request in cluster.requests] == [1, 2, 2]
    assert cluster.asked_pd.count("ScanRegions") == 1
    assert max(clock.slept) <= RetryReason.REGION_MOVED.value[0]


def test_store_that_knows_no_leader_leads_back_to_pd(
    cluster: ScriptedCluster, client: TikvClient, clock: Clock
) -> None:
    def move(_: Message) -> Message:
        cluster.regions = [region(1, stores=(2, 1))]
        return NO_LEADER

    cluster.says("KvGet", move)
    get(client, clock.backoff(LIMIT_S))
    assert [request.store for request in cluster.requests] == [1, 2]
    (slept,) = clock.slept
    assert RetryReason.NO_LEADER.value[0] / 2 <= slept <= RetryReason.NO_LEADER.value[0]


def test_split_is_learnt_from_the_store_that_tells_of_it(
    cluster: ScriptedCluster, client: TikvClient, clock: Clock
) -> None:
    halves = [region(2, b"", b"t-m", version=2), region(1, b"t-m", version=2)]
    cluster.says("KvGet", refused(epoch_not_match=pb.EpochNotMatch(current_regions=halves)))
    get(client, clock.backoff(LIMIT_S))
    get(client, clock.backoff(LIMIT_S), b"t-z")
    assert [(request.region, request.epoch) for request in cluster.requests] == [(1, (1, 1)), (2, (1, 2)), (1, (1, 2))]
    assert cluster.asked_pd.count("ScanRegions") == 1


def test_split_that_nobody_tells_about_is_asked_from_pd(
    cluster: ScriptedCluster, client: TikvClient, clock: Clock
) -> None:
    def split(_: Message) -> Message:
        cluster.regions = [region(2, b"", b"t-m", version=2), region(1, b"t-m", version=2)]
        return refused(epoch_not_match=pb.EpochNotMatch())

    cluster.says("KvGet", split)
    get(client, clock.backoff(LIMIT_S))
    assert [request.region for request in cluster.requests] == [1, 2]


def test_replica_that_lags_behind_pd_is_asked_again_and_not_believed(
    cluster: ScriptedCluster, client: TikvClient, clock: Clock
) -> None:
    cluster.regions = [region(1, b"", b"t-m", version=5), region(2, b"t-m", version=5)]
    before = refused(epoch_not_match=pb.EpochNotMatch(current_regions=[region(1, version=4)]))
    cluster.says("KvGet", before, before)
    get(client, clock.backoff(LIMIT_S))
    assert [request.epoch for request in cluster.requests] == [(1, 5)] * 3
    assert cluster.asked_pd.count("ScanRegions") == 1


def test_busy_store_gets_the_time_that_it_asks_for(cluster: ScriptedCluster, client: TikvClient, clock: Clock) -> None:
    cluster.says("KvGet", BUSY, BUSY)
    get(client, clock.backoff(LIMIT_S))
    assert [request.store for request in cluster.requests] == [1, 1, 1]
    assert len(clock.slept) == 2
    assert min(clock.slept) >= 0.7
    assert cluster.asked_pd.count("ScanRegions") == 1


def test_stale_command_is_sent_again_at_once(cluster: ScriptedCluster, client: TikvClient, clock: Clock) -> None:
    cluster.says("KvGet", STALE)
    get(client, clock.backoff(LIMIT_S))
    assert [request.store for request in cluster.requests] == [1, 1]
    assert max(clock.slept) <= RetryReason.REGION_MOVED.value[0]
    assert cluster.asked_pd.count("ScanRegions") == 1


def test_store_that_moved_is_looked_for_at_pd(cluster: ScriptedCluster, client: TikvClient, clock: Clock) -> None:
    def move(_: Message) -> Message:
        cluster.addresses[1] = cluster.addresses[2]
        return OTHER_STORE

    cluster.says("KvGet", move)
    get(client, clock.backoff(LIMIT_S))
    assert [request.store for request in cluster.requests] == [1, 2]
    assert cluster.asked_pd.count("GetStore") == 2


@pytest.mark.parametrize("reply", [NO_REGION, NO_WORDS, StatusCode.UNAVAILABLE], ids=["no region", "unknown", "broken"])
def test_region_is_asked_from_pd_again(
    cluster: ScriptedCluster, client: TikvClient, clock: Clock, reply: Reply
) -> None:
    cluster.says("KvGet", reply)
    get(client, clock.backoff(LIMIT_S))
    assert len(cluster.requests) == 2
    assert cluster.asked_pd.count("ScanRegions") == 2


def test_store_that_is_gone_for_good_is_waited_out(cluster: ScriptedCluster, client: TikvClient, clock: Clock) -> None:
    cluster.regions = [region(1, stores=(9, 2))]
    with pytest.raises(StoreUnavailableError, match="store 9 of region 1 is gone"):
        get(client, clock.backoff(LIMIT_S))
    cluster.regions = [region(1, stores=(2,))]
    get(client, clock.backoff(LIMIT_S))
    assert [request.store for request in cluster.requests] == [2]


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (NO_LEADER, "not_leader"),
        (LED_BY_2, "not_leader"),
        (BUSY, "full"),
        (STALE, "stale_command"),
        (OTHER_STORE, "store_not_match"),
        (NO_REGION, "region_not_found"),
        (NO_WORDS, "newer than this client"),
        (StatusCode.UNAVAILABLE, "UNAVAILABLE: scripted"),
        (StatusCode.RESOURCE_EXHAUSTED, "RESOURCE_EXHAUSTED: scripted"),
    ],
)
def test_backoff_ends_in_an_error_that_names_store_and_reason(
    cluster: ScriptedCluster, client: TikvClient, clock: Clock, reply: Reply, why: str
) -> None:
    cluster.says("KvGet", *[reply] * 10_000)
    with pytest.raises(StoreUnavailableError, match=why) as raised:
        get(client, clock.backoff(LIMIT_S))
    assert any(address in str(raised.value) for address in cluster.addresses.values())
    assert clock.now_s <= LIMIT_S
    assert len(cluster.requests) < 1000


def test_store_that_hangs_is_given_up(cluster: ScriptedCluster, client: TikvClient) -> None:
    released = threading.Event()

    def hang(_: Message) -> Message:
        released.wait(LIMIT_S)
        return pb.GetResponse()

    cluster.says("KvGet", hang)
    try:
        with pytest.raises(StoreUnavailableError, match=f"store {cluster.addresses[1]}: DEADLINE_EXCEEDED"):
            get(client, Backoff(0.3))
    finally:
        released.set()
    get(client, Backoff(LIMIT_S))


def test_store_that_is_not_there_is_named(cluster: ScriptedCluster, client: TikvClient, clock: Clock) -> None:
    cluster.addresses[1] = "127.0.0.1:1"
    with pytest.raises(StoreUnavailableError, match=r"store 127\.0\.0\.1:1: UNAVAILABLE"):
        get(client, clock.backoff(LIMIT_S))


def test_key_error_is_the_callers_answer(cluster: ScriptedCluster, client: TikvClient, clock: Clock) -> None:
    cluster.says("KvGet", pb.GetResponse(error=pb.KeyError(abort="no")))
    assert get(client, clock.backoff(LIMIT_S)).error.abort == "no"
    assert clock.slept == []


# ── PD ────────────────────────────────────────────────────────────────────────────────────────────


def test_pd_that_is_a_url_and_a_member_is_asked_once(cluster: ScriptedCluster) -> None:
    with closing(TikvClient(Endpoint((f"http://{cluster.leaders[0]}/",), patience_s=LIMIT_S))) as client:
        client.pd.check_endpoints()
        get(client, client.backoff())


def test_pd_that_is_just_starting_is_waited_for(cluster: ScriptedCluster, client: TikvClient) -> None:
    get(client, client.backoff())
    client.pd._forget_leader()
    cluster.starting = 3
    client.pd.timestamp()
    assert cluster.starting == 0
    cluster.starting = 1
    with closing(TikvClient(Endpoint((cluster.leaders[0],)))) as other:
        with pytest.raises(StoreUnavailableError, match="is just starting"):
            other.pd.check_endpoints()
        other.pd.check_endpoints()


def test_locks_are_listed_a_thousand_at_once(cluster: ScriptedCluster, client: TikvClient) -> None:
    keys = [b"k%06d" % number for number in range(2_500)]

    def some(request: Message) -> Message:
        assert isinstance(request, pb.ScanLockRequest)
        assert 0 < request.limit < 2_000, "an answer is 64 MB at most"
        found = [key for key in keys if request.start_key <= key < request.end_key][: request.limit]
        return pb.ScanLockResponse(locks=[pb.LockInfo(key=key, lock_version=7) for key in found])

    cluster.says("KvScanLock", *[some] * 10)
    assert [lock.key for lock in locks_in(client, b"k", b"l")] == keys


def test_another_cluster_behind_the_same_address_is_refused(cluster: ScriptedCluster, client: TikvClient) -> None:
    get(client, client.backoff())
    with scripted(stores=(1,)) as other:
        other.cluster_id += 1
        cluster.leaders[:] = other.leaders
        with (
            closing(TikvClient(Endpoint((*cluster.leaders, cluster.addresses[1])))) as both,
            pytest.raises(ConfigError, match=r"endpoints of several clusters: .* is of cluster 4712"),
        ):
            both.pd.check_endpoints()


# ── transactions ──────────────────────────────────────────────────────────────────────────────────

TRANSACTION = Transaction(start_ts=(5000 << 18), primary=b"t-primary", ttl_ms=1000)


def rows(count: int, value: bytes = b"value") -> Mutations:
    keys = [b"t-%06d" % number for number in range(count)]
    return Mutations.of(pa.array(keys, pa.binary()), pa.array([value] * count, pa.binary()), inserts=False)


def prewritten(cluster: ScriptedCluster) -> list[bytes]:
    bodies = [request.body for request in cluster.asked("KvPrewrite")]
    return [each.key for body in bodies if isinstance(body, pb.PrewriteRequest) for each in body.mutations]


def test_prewrite_keeps_to_regions_and_says_how_many_rows_there_are(
    cluster: ScriptedCluster, client: TikvClient
) -> None:
    cluster.regions = [region(1, b"", b"t-000400"), region(2, b"t-000400", b"t-000900"), region(3, b"t-000900")]
    done = prewrite(client, TRANSACTION, rows(1000))
    assert sorted(prewritten(cluster)) == rows(1000).keys.to_pylist()
    assert sorted(request.region for request in cluster.requests) == [1, 2, 3]
    assert len(done.spans) == 3
    assert {request.body.txn_size for request in cluster.requests if isinstance(request.body, pb.PrewriteRequest)} == {
        1000
    }


def test_batch_whose_region_was_split_is_cut_again_and_nothing_is_left_out(
    cluster: ScriptedCluster, client: TikvClient
) -> None:
    def split(_: Message) -> Message:
        cluster.regions = [region(2, b"", b"t-000400", version=2), region(1, b"t-000400", version=2)]
        current = pb.EpochNotMatch(current_regions=cluster.regions)
        return pb.PrewriteResponse(region_error=pb.RegionError(epoch_not_match=current))

    cluster.says("KvPrewrite", split)
    done = prewrite(client, TRANSACTION, rows(1000))
    taken = [request for request in cluster.requests if request.epoch == (1, 2)]
    keys = [each.key for each in _mutations(taken)]
    assert sorted(keys) == rows(1000).keys.to_pylist()
    assert done.spans == ((b"t-000000", b"t-000399\0"), (b"t-000400", b"t-000999\0"))


def _mutations(requests: list[Request]) -> list[pb.Mutation]:
    return [each for one in requests if isinstance(one.body, pb.PrewriteRequest) for each in one.body.mutations]


def locked(number: int) -> pb.PrewriteResponse:
    lock = pb.LockInfo(key=b"t-%06d" % number, primary_lock=b"t-dead", lock_version=17, lock_ttl=1)
    return pb.PrewriteResponse(errors=[pb.KeyError(locked=lock)])


def test_many_locks_of_a_dead_writer_are_resolved_by_their_region(cluster: ScriptedCluster, client: TikvClient) -> None:
    """A store may report one lock at a time, where a dead writer has left a hundred thousand."""
    left = list(range(1000))

    def next_lock(_: Message) -> Message:
        return locked(left[0]) if left else pb.PrewriteResponse()

    def resolve(request: Message) -> Message:
        assert isinstance(request, pb.ResolveLockRequest)
        assert (request.start_version, request.commit_version) == (17, 0)
        left[:] = left[1:] if request.keys else []
        return pb.ResolveLockResponse()

    cluster.says("KvPrewrite", *[next_lock] * 100)
    cluster.says("KvResolveLock", *[resolve] * 100)
    prewrite(client, TRANSACTION, rows(1000))
    assert not left
    assert len(cluster.asked("KvResolveLock")) < 20


def test_lock_of_a_committed_transaction_is_committed_when_it_was(cluster: ScriptedCluster, client: TikvClient) -> None:
    cluster.says("KvPrewrite", locked(3))
    cluster.says("KvCheckTxnStatus", pb.CheckTxnStatusResponse(commit_version=99))
    prewrite(client, TRANSACTION, rows(10))
    (request,) = cluster.asked("KvResolveLock")
    assert isinstance(request.body, pb.ResolveLockRequest)
    assert (request.body.start_version, request.body.commit_version) == (17, 99)
    assert list(request.body.keys) == [b"t-000003"]


def test_live_lock_is_waited_for_and_then_named(cluster: ScriptedCluster, client: TikvClient) -> None:
    cluster.says("KvPrewrite", *[locked(3)] * 1000)
    cluster.says("KvCheckTxnStatus", *[pb.CheckTxnStatusResponse(lock_ttl=1000)] * 1000)
    with pytest.raises(TargetBusyError, match="key b't-000003' is locked by another writer's transaction"):
        prewrite(client, TRANSACTION, rows(10), lock_wait_s=1.2)
    assert not cluster.asked("KvResolveLock")


def test_error_that_may_pass_is_tried_again_and_one_that_nobody_knows_is_not(
    cluster: ScriptedCluster, client: TikvClient
) -> None:
    cluster.says("KvPrewrite", pb.PrewriteResponse(errors=[pb.KeyError(retryable="latch")]))
    prewrite(client, TRANSACTION, rows(10))
    cluster.says("KvPrewrite", pb.PrewriteResponse(errors=[pb.KeyError(abort="empty value")]))
    cluster.says("KvCheckTxnStatus", pb.CheckTxnStatusResponse(lock_ttl=1000))
    with pytest.raises(InvariantError, match="empty value"):
        prewrite(client, TRANSACTION, rows(10))


def test_commit_takes_a_later_timestamp_where_a_reader_was_given_one(
    cluster: ScriptedCluster, client: TikvClient
) -> None:
    expired = pb.KeyError(commit_ts_expired=pb.CommitTsExpired(min_commit_ts=5))
    cluster.says("KvCommit", pb.CommitResponse(error=expired))
    cluster.says("KvCheckTxnStatus", pb.CheckTxnStatusResponse(commit_version=77))
    assert commit(client, TRANSACTION) == 77
    first, second = (request.body for request in cluster.asked("KvCommit"))
    assert isinstance(first, pb.CommitRequest)
    assert isinstance(second, pb.CommitRequest)
    assert second.commit_version > first.commit_version


def test_commit_that_was_refused_is_judged_by_the_primary_alone(cluster: ScriptedCluster, client: TikvClient) -> None:
    gone = pb.CommitResponse(error=pb.KeyError(retryable="lock not found"))
    cluster.says("KvCommit", gone, gone, gone)
    cluster.says(
        "KvCheckTxnStatus",
        pb.CheckTxnStatusResponse(commit_version=77),
        pb.CheckTxnStatusResponse(),
        pb.CheckTxnStatusResponse(error=pb.KeyError(txn_not_found=pb.TxnNotFound(start_ts=1))),
    )
    assert commit(client, TRANSACTION) == 77
    for _ in range(2):
        with pytest.raises(ReplayNeededError, match="lock not found"):
            commit(client, TRANSACTION)


def test_settlings_reach_every_span_whatever_splits_after_they_are_planned(
    cluster: ScriptedCluster, client: TikvClient
) -> None:
    cluster.regions = [region(1, b"", b"t-000400"), region(2, b"t-000400")]
    spans: list[Span] = [(b"t-000100", b"t-000150"), (b"t-000300", b"t-000500"), (b"t-000700", b"t-000800")]
    pieces = [piece for call in settlings(client, 1, 2, spans) for piece in call.spans]
    assert pieces == [(b"t-000100", b"t-000400"), (b"t-000400", b"t-000800")]


TOO_LARGE = refused(raft_entry_too_large=pb.RaftEntryTooLarge(region_id=1, entry_size=9_000_000))


def test_row_that_is_larger_than_the_store_takes_is_refused_at_once(
    cluster: ScriptedCluster, client: TikvClient, clock: Clock
) -> None:
    cluster.says("KvGet", TOO_LARGE)
    with pytest.raises(TargetRefusedError, match="9,000,000 bytes is more than TiKV takes"):
        get(client, clock.backoff(LIMIT_S))
    assert clock.slept == []


def test_key_that_is_longer_than_an_old_store_takes_is_refused_with_the_setting_that_allows_it(
    cluster: ScriptedCluster, client: TikvClient
) -> None:
    cluster.says("KvPrewrite", pb.PrewriteResponse(errors=[pb.KeyError(abort="KeyTooLarge(4608, 4096)")]))
    with pytest.raises(TargetRefusedError, match=r"KeyTooLarge\(4608, 4096\): raise TiKV's storage.max-key-size"):
        prewrite(client, TRANSACTION, few())


# ── answers that are larger than a message may be ─────────────────────────────────────────────────

LARGE = b"x" * (4 << 20)


def few(*, inserts: bool = False) -> Mutations:
    """Small mutations of five keys."""
    keys = pa.array([b"t-%06d" % number for number in range(5)], pa.binary())
    return Mutations.of(keys, pa.array([b"small"] * 5, pa.binary()), inserts=inserts)


def test_rows_that_exist_are_found_however_large_they_are(cluster: ScriptedCluster, client: TikvClient) -> None:
    """Five small rows whose keys exist with values of 4 MiB: the store sends 10 MiB in a message at most."""
    existing = pb.PrewriteResponse(errors=[pb.KeyError(already_exist=pb.AlreadyExist(key=b"t-000000"))])

    def found(request: Message) -> Message:
        assert isinstance(request, pb.BatchGetRequest)
        return pb.BatchGetResponse(pairs=[pb.KvPair(key=key, value=LARGE) for key in request.keys])

    cluster.says("KvPrewrite", existing)
    cluster.says("KvBatchGet", *[found] * 20)
    done = prewrite(client, TRANSACTION, few(inserts=True))
    assert done.existing == tuple(few().keys.to_pylist())
    asked = [len(request.body.keys) for request in cluster.asked("KvBatchGet")]  # type: ignore[attr-defined]
    assert asked == [5, 2, 2, 1], "asked again for fewer, at once"


def test_records_are_read_however_large_they_are(cluster: ScriptedCluster, client: TikvClient) -> None:
    def found(request: Message) -> Message:
        assert isinstance(request, pb.ScanRequest)
        keys = [key for key in few().keys.to_pylist() if request.start_key <= key < request.end_key]
        return pb.ScanResponse(pairs=[pb.KvPair(key=key, value=LARGE) for key in keys[: request.limit]])

    cluster.says("KvScan", *[found] * 50)
    assert [key for key, _ in scan(client, b"t-", b"t-~")] == few().keys.to_pylist()
