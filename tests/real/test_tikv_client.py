"""The client finds PD's leader, trusts the configured authority, and reports every other case with its fix."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sinks.tikv.channels import Tls
from sinks.tikv.client import Endpoint, TikvClient
from sinks.tikv.mutations import mutation
from sinks.tikv.records import scan
from sinks.tikv.transaction import write_mutations
from tests.conftest import or_absent
from tests.real import tikv_cluster
from tests.real.certificates import issue
from tests.real.processes import HOST, on_free_ports
from tests.real.tikv_cluster import TikvCluster
from tests.real.tikv_epochs import Place, committed, meanwhile, prepared, ref, rows
from tests.waiting import wait_until
from timeline.errors import ConfigError, StoreUnavailableError, TargetRefusedError, UntrustedStoreError

pytestmark = pytest.mark.real

TLS_WORDS = r"no PD answers: .*check tls: cert and key of this client, and whether the server speaks tls at all"


@pytest.fixture(scope="module")
def three_pds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TikvCluster]:
    with or_absent(), tikv_cluster.running(tmp_path_factory.mktemp("three"), pds=3) as running:
        yield running


def test_timestamps_and_writes_go_on_while_pd_leaders_move_and_die(three_pds: TikvCluster) -> None:
    with (
        closing(TikvClient(Endpoint(tuple(three_pds.pd), patience_s=60))) as one,
        closing(TikvClient(Endpoint((three_pds.pd[2],), patience_s=60))) as other,
    ):
        drawn: dict[str, list[int]] = {"a": [], "b": [], "c": []}
        written: list[bytes] = []

        def write() -> None:
            key = b"t-write-%06d" % len(written)
            write_mutations(one, mutation(key, b"value"), 20_000)
            written.append(key)

        def has_moved_on() -> bool:
            marks.append([*(len(each) for each in drawn.values()), len(written)])
            return all(now > then + 20 for now, then in zip(marks[-1], marks[0], strict=True))

        marks: list[list[int]] = []
        with meanwhile(
            lambda: drawn["a"].append(one.pd.timestamp()),
            lambda: drawn["b"].append(one.pd.timestamp()),
            lambda: drawn["c"].append(other.pd.timestamp()),
            write,
        ):
            for disturb in (three_pds.move_pd_leader, lambda: three_pds.pd_leader().kill(), lambda: None):
                disturb()
                marks.clear()
                wait_until(has_moved_on, "all go on")
        for member in three_pds.pds:
            if not member.process.is_running:
                member.start()
        assert all(each == sorted(set(each)) for each in drawn.values())
        everything = [timestamp for each in drawn.values() for timestamp in each]
        assert len(everything) == len(set(everything))
        assert [key for key, _ in scan(other, b"t-write-", b"t-write-~")] == written


# ── TLS ───────────────────────────────────────────────────────────────────────────────────────────


def tls(cluster: TikvCluster, **files: Path | None) -> Tls:
    assert cluster.certificates is not None
    known = {"ca": cluster.certificates.authority, "cert": cluster.certificates.client}
    chosen = known | {"key": cluster.certificates.client} | files
    return Tls(**{name: str(path) for name, path in chosen.items() if path is not None})


def checked(cluster: TikvCluster, own: Tls | None) -> None:
    with closing(TikvClient(Endpoint(tuple(cluster.pd), own, patience_s=1))) as client:
        client.pd.check_endpoints()


def test_epoch_is_written_over_tls(tikv_tls: TikvCluster) -> None:
    place = Place.in_(tikv_tls)
    own = tls(tikv_tls)
    sink = place.sink(tls={"ca": own.ca, "cert": own.cert, "key": own.key})
    sink.ensure()
    committed(sink, ref(0), rows(range(1000)))
    start, end = place.prefix.encode() + b"\x01", place.prefix.encode() + b"\xff"
    assert len(list(scan(sink.client, start, end))) == 1000


def test_client_without_a_certificate_is_told_what_to_check(tikv_tls: TikvCluster) -> None:
    with pytest.raises(StoreUnavailableError, match=TLS_WORDS):
        checked(tikv_tls, tls(tikv_tls, cert=None, key=None))


def test_client_that_trusts_another_authority_is_told_so(tikv_tls: TikvCluster, tmp_path: Path) -> None:
    with pytest.raises(UntrustedStoreError, match=r"CERTIFICATE_VERIFY_FAILED.*of none of the authorities in tls: ca"):
        checked(tikv_tls, tls(tikv_tls, ca=issue(tmp_path).authority))


def test_client_whose_certificate_is_of_another_authority_is_told_what_to_check(
    tikv_tls: TikvCluster, tmp_path: Path
) -> None:
    other = issue(tmp_path).client
    with pytest.raises(StoreUnavailableError, match=TLS_WORDS):
        checked(tikv_tls, tls(tikv_tls, cert=other, key=other))


def test_client_without_tls_is_told_what_to_check(tikv_tls: TikvCluster) -> None:
    with pytest.raises(StoreUnavailableError, match=r"no PD answers: .*does it want tls\?"):
        checked(tikv_tls, None)


def test_client_with_tls_where_there_is_none_is_told_what_to_check(tikv: TikvCluster, tikv_tls: TikvCluster) -> None:
    with pytest.raises(StoreUnavailableError, match=TLS_WORDS):
        checked(tikv, tls(tikv_tls))


# ── which cluster ─────────────────────────────────────────────────────────────────────────────────


def test_cluster_that_is_not_the_one_that_is_meant_is_refused(tikv: TikvCluster) -> None:
    place = Place.in_(tikv)
    found = place.client.pd.cluster_id
    place.sink(cluster_id=found).ensure()
    with pytest.raises(ConfigError, match=f"is cluster {found}, cluster_id says 42: is this the cluster that is meant"):
        place.sink(cluster_id=42).ensure()


def test_endpoints_of_two_clusters_are_refused(tikv: TikvCluster, three_pds: TikvCluster) -> None:
    mixed = [tikv.pd[0], three_pds.pd[0]]
    with pytest.raises(ConfigError, match=r"endpoints of several clusters: .* name those of one"):
        Place(tuple(mixed), "tmixed_").sink().ensure()


def test_unreachable_pd_is_named_soon() -> None:
    nobody = on_free_ports(1, lambda ports: f"{HOST}:{ports[0]}")
    began_s = time.monotonic()
    with pytest.raises(StoreUnavailableError, match=f"no PD answers: {nobody} .*check pd"):
        Place((nobody,), "tnobody_").sink().ensure()
    assert time.monotonic() - began_s < 30


def test_one_endpoint_that_answers_is_enough(tikv: TikvCluster) -> None:
    nobody = on_free_ports(1, lambda ports: f"{HOST}:{ports[0]}")
    Place((nobody, tikv.pd[0]), "tone_").sink().ensure()


def test_part_of_another_cluster_is_not_committed_here(tikv: TikvCluster, three_pds: TikvCluster) -> None:
    here, elsewhere = Place.in_(tikv), Place.in_(three_pds)
    part = prepared(elsewhere.sink(), ref(0), rows(range(10)))
    with pytest.raises(TargetRefusedError, match=f"was prepared in cluster {elsewhere.client.pd.cluster_id}"):
        Place(here.pd, elsewhere.prefix).sink().commit(part)
