"""A TiKV-protocol cluster on loopback: a real PD and a store of our own, built once by the Go toolchain.

Not a TiKV release: `tests/real/tikv/store` has unistore behind TiKV's gRPC protocol; its README lists
the differences and the untested parts. ``python -m tests.real.tikv_cluster`` builds both programs ahead of the tests.
"""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError

import grpc

from tests.real.certificates import Certificates
from tests.real.processes import HOST, ServerProcess, on_free_ports
from tests.real.toolchain import MissingToolchainError, find_tool, kept
from tests.waiting import wait_until

PD_VERSION = "v8.1.0"
REGION_BYTES = 96 << 20
MODULES = Path(__file__).with_name("tikv")
_ELECTION_S = 20.0
_ANSWER_S = 10.0
_CHANNEL_S = 2.0


class Member:
    """One process of a cluster; a restart keeps ports and data."""

    def __init__(self, process: ServerProcess, port: int, is_ready: Callable[[], bool]) -> None:
        """Do not start the process yet.

        Args:
            process: the member's process.
            port: for clients.
            is_ready: whether this member serves the cluster again.
        """
        self.process = process
        self.port = port
        self._is_ready = is_ready

    @property
    def address(self) -> str:
        """Host and port for clients."""
        return f"{HOST}:{self.port}"

    def start(self) -> None:
        """Start or restart the member; returns when it is ready, and when the store runs, every region has a leader."""
        self.process.start(lambda: self.port in self.process.listening_ports and self._is_ready())

    def stop(self) -> None:
        """Stop the member gracefully; no effect if it does not run."""
        self.process.stop()

    def kill(self) -> None:
        """Kill the member (SIGKILL)."""
        self.process.kill()


@dataclass(frozen=True)
class Region:
    """A region as PD knows it.

    Attributes:
        id: PD's id of the region; after a split the right part keeps it.
        start: first key in PD's encoding, memcomparable; empty for the first region.
        end: end key, exclusive; empty for the last region.
        has_leader: whether the region has a leader, which serves its requests.
    """

    id: int
    start: bytes
    end: bytes
    has_leader: bool


class TikvCluster:
    """PD and a store: their addresses and processes."""

    def __init__(self, pds: Sequence[ServerProcess], store: ServerProcess, settings: Settings) -> None:
        """Do not start the cluster yet; `launch` and `running` do."""
        self.certificates = settings.certificates
        self.region_bytes = settings.region_bytes
        self.pds = [
            Member(process, port, self._pd_is_ready) for process, port in zip(pds, settings.pd_ports, strict=True)
        ]
        self.store = Member(store, settings.store_port, self._store_is_ready)

    @property
    def pd(self) -> list[str]:
        """PD's endpoints, as in a job file."""
        return [member.address for member in self.pds]

    @property
    def pd_process(self) -> Member:
        """The first PD, or the only one."""
        return self.pds[0]

    @property
    def processes(self) -> list[ServerProcess]:
        """All processes, the store's process first."""
        return [self.store.process, *(member.process for member in self.pds)]

    def start(self) -> None:
        """Start the members that do not run; returns when every region has a leader."""
        pds = [member for member in self.pds if not member.process.is_running]
        # In parallel: the first of three PDs to start waits for a second one.
        with ThreadPoolExecutor(len(self.pds)) as pool:
            list(pool.map(Member.start, pds))
        if not self.store.process.is_running:
            self.store.start()

    def stop(self) -> None:
        """Stop the whole cluster gracefully, the store first; no effect on members that do not run."""
        self.store.stop()
        # In parallel: the last of three PDs cannot work without the others.
        with ThreadPoolExecutor(len(self.pds)) as pool:
            list(pool.map(Member.stop, self.pds))

    def regions(self) -> list[Region]:
        """All regions known to PD, ordered by first key.

        Raises:
            OSError: no PD answers.
        """
        found = self._ask("regions")["regions"] or []
        regions = [
            Region(
                int(region["id"]),
                bytes.fromhex(region["start_key"]),
                bytes.fromhex(region["end_key"]),
                bool(region.get("leader", {}).get("id")),
            )
            for region in found
        ]
        return sorted(regions, key=lambda region: region.start)

    def is_whole(self) -> bool:
        """Whether PD knows regions for all keys, and a leader for each."""
        try:
            regions = self.regions()
        except OSError:
            return False
        ends = [region.end for region in regions]
        starts = [region.start for region in regions]
        return bool(regions) and starts == [b"", *ends[:-1]] and not ends[-1] and all(r.has_leader for r in regions)

    def pd_leader(self) -> Member:
        """The PD that leads the others.

        Raises:
            OSError: no PD answers, or they have no leader.
        """
        (url,) = self._ask("leader")["client_urls"]
        return next(member for member in self.pds if url.endswith(member.address))

    def move_pd_leader(self) -> None:
        """Make PD's leader resign; returns when another PD leads."""
        before = self.pd_leader()
        # Only once: a second request might move leadership back.
        with suppress(TimeoutError):
            self._answer(before, "leader/resign", method="POST")
        wait_until(lambda: self._leader_or_none() not in (None, before), "another PD leads")

    def _leader_or_none(self) -> Member | None:
        try:
            return self.pd_leader()
        except OSError:
            return None

    def _pd_is_ready(self) -> bool:
        return self._leader_or_none() is not None and (self.is_whole() or not self.store.process.is_running)

    def _store_is_ready(self) -> bool:
        # The store listens before it has read its data, while PD still has its old regions.
        with self._channel(self.store.address) as channel:
            try:
                grpc.channel_ready_future(channel).result(timeout=_CHANNEL_S)
            except grpc.FutureTimeoutError:
                return False
        return self.is_whole()

    def _channel(self, address: str) -> grpc.Channel:
        if self.certificates is None:
            return grpc.insecure_channel(address)
        client = self.certificates.client.read_bytes()
        trust = self.certificates.authority.read_bytes()
        return grpc.secure_channel(address, grpc.ssl_channel_credentials(trust, client, client))

    def _ask(self, path: str) -> Any:
        """PD's answer to an HTTP request, from the first member that answers; retries while PD has no leader."""
        until = time.monotonic() + _ELECTION_S
        while True:
            problem: OSError = URLError("no PD runs")
            for member in self.pds:
                try:
                    return self._answer(member, path)
                except OSError as error:
                    problem = error
            if not (isinstance(problem, HTTPError) and problem.code == 503) or time.monotonic() > until:
                raise problem
            time.sleep(0.1)

    def _answer(self, member: Member, path: str, method: str = "GET") -> Any:
        """One member's answer."""
        trust = None
        if self.certificates is not None:
            trust = ssl.create_default_context(cafile=self.certificates.authority)
            trust.load_cert_chain(self.certificates.client)
        url = f"{_scheme(self.certificates)}://{member.address}/pd/api/v1/{path}"
        request = urllib.request.Request(url, method=method)
        try:
            with urllib.request.urlopen(request, timeout=_ANSWER_S, context=trust) as answer:
                return json.load(answer)
        except HTTPError as refusal:
            refusal.close()
            raise


@dataclass(frozen=True)
class Programs:
    """The programs of a cluster.

    Attributes:
        pd: PD's binary.
        store: the store's binary.
    """

    pd: Path
    store: Path


@dataclass(frozen=True)
class Settings:
    """Settings of one cluster.

    Attributes:
        pd_ports: for clients, one for each PD.
        peer_ports: for the other PDs, one for each PD.
        store_port: of the store.
        region_bytes: a region of more than 1.5 times this size is split within five seconds; it must have room for
            many rows. Only committed rows count.
        certificates: for TLS, also required of clients; without TLS by default.
    """

    pd_ports: Sequence[int]
    peer_ports: Sequence[int]
    store_port: int
    region_bytes: int = REGION_BYTES
    certificates: Certificates | None = None


def build() -> Programs:
    """Paths of both programs, built into the cache if missing; about five minutes without Go's own cache.

    Raises:
        MissingToolchainError: there is no Go toolchain.
    """
    # PD and unistore need different versions of the same modules: two builds, in parallel.
    with ThreadPoolExecutor(2) as pool:
        version = f"-X github.com/tikv/pd/pkg/versioninfo.PDReleaseVersion={PD_VERSION}"
        pd = pool.submit(_build, "pd", "github.com/tikv/pd/cmd/pd-server", ["-tags", "without_dashboard"], version)
        store = pool.submit(_build, "store", ".", [], "")
        return Programs(pd.result() / "pd", store.result() / "store")


def _build(name: str, package: str, options: Sequence[str], link: str) -> Path:
    go = find_tool("go", "the TiKV cluster", "https://go.dev/dl")
    module = MODULES / name
    toolchain = subprocess.run([go, "version"], capture_output=True, check=True, text=True).stdout
    command = [go, "build", "-trimpath", "-mod=readonly", *options, "-ldflags", f"-s -w {link}".strip()]
    sources = [path.read_text() for path in sorted(module.iterdir()) if path.suffix in (".go", ".mod", ".sum")]

    def make(folder: Path) -> None:
        environment = os.environ | {"CGO_ENABLED": "0", "GOWORK": "off"}
        output = ["-o", str(folder / name), package]
        subprocess.run([*command, *output], cwd=module, env=environment, check=True, stdin=subprocess.DEVNULL)

    recipe = "\n".join([*command[1:], package, toolchain, *sources])
    return kept(f"tikv-{name}", recipe, make)


def launch(
    folder: Path,
    ports: Sequence[int],
    *,
    region_bytes: int = REGION_BYTES,
    certificates: Certificates | None = None,
) -> TikvCluster:
    """A started cluster over `folder`, with existing data if there is any.

    Args:
        folder: takes data, settings and logs.
        ports: on loopback: two for each PD (for clients, for other PDs), then the store's. Existing data needs the
            same ports as before.
        region_bytes: see `Settings`.
        certificates: see `Settings`.

    Raises:
        MissingToolchainError: the programs cannot be built here.
        PortTakenError: another process listens on one of the ports.
        ServerStartError: the cluster does not start.
    """
    programs = build()
    *pd_ports, store_port = ports
    settings = Settings(pd_ports[0::2], pd_ports[1::2], store_port, region_bytes, certificates)
    pds = [_pd(programs.pd, folder, settings, number) for number in range(len(settings.pd_ports))]
    cluster = TikvCluster(pds, _store(programs.store, folder, settings), settings)
    try:
        cluster.start()
    except BaseException:
        cluster.stop()
        raise
    return cluster


def _pd(program: Path, folder: Path, settings: Settings, number: int) -> ServerProcess:
    name = f"pd-{number}"
    home = folder / name
    home.mkdir(parents=True, exist_ok=True)
    # Short lease and election: the successor of a killed PD waits for both, in every test that kills one.
    toml = ["lease = 2", 'tick-interval = "200ms"', 'election-interval = "1s"', "[replication]", "max-replicas = 1"]
    if settings.certificates is not None:
        pem = {"cacert-path": settings.certificates.authority}
        pem |= {key: settings.certificates.server for key in ("cert-path", "key-path")}
        toml += ["[security]", *(f"{key} = {json.dumps(str(path))}" for key, path in pem.items())]
    (home / "pd.toml").write_text("\n".join(toml) + "\n")
    base = f"{_scheme(settings.certificates)}://{HOST}"
    peers = [f"pd-{peer}={base}:{port}" for peer, port in enumerate(settings.peer_ports)]
    arguments = {
        "name": name,
        "config": home / "pd.toml",
        "data-dir": home / "data",
        "client-urls": f"{base}:{settings.pd_ports[number]}",
        "peer-urls": f"{base}:{settings.peer_ports[number]}",
        "initial-cluster": ",".join(peers),
    }
    return ServerProcess("PD", _command(program, arguments), home / "pd.log")


def _store(program: Path, folder: Path, settings: Settings) -> ServerProcess:
    home = folder / "store"
    home.mkdir(parents=True, exist_ok=True)
    arguments: dict[str, object] = {
        "addr": f"{HOST}:{settings.store_port}",
        "pd": ",".join(f"{HOST}:{port}" for port in settings.pd_ports),
        "data-dir": home / "data",
        "region-size": settings.region_bytes,
    }
    if settings.certificates is not None:
        own = settings.certificates.server
        arguments |= {"ca": settings.certificates.authority, "cert": own, "key": own}
    return ServerProcess("the TiKV store", _command(program, arguments), home / "store.log")


def _command(program: Path, arguments: dict[str, object]) -> list[str]:
    return [str(program), *(f"--{name}={value}" for name, value in arguments.items())]


def _scheme(certificates: Certificates | None) -> str:
    return "http" if certificates is None else "https"


@contextmanager
def running(
    folder: Path, *, pds: int = 1, region_bytes: int = REGION_BYTES, certificates: Certificates | None = None
) -> Iterator[TikvCluster]:
    """A cluster over `folder` on free ports until the block ends; see `launch`.

    Args:
        folder: takes data, settings and logs.
        pds: number of PDs; of three, one may fail.
        region_bytes: see `Settings`.
        certificates: see `Settings`.
    """
    cluster = on_free_ports(
        2 * pds + 1,
        lambda ports: launch(folder, ports, region_bytes=region_bytes, certificates=certificates),
    )
    try:
        yield cluster
    finally:
        cluster.stop()


if __name__ == "__main__":
    try:
        print(build())
    except MissingToolchainError as missing:
        sys.exit(str(missing))
