"""Kafka, S3, Spark and TiKV in the background on loopback, for manual use: ``make services``, ``make services-stop``.

::

    .services/<name>/        data and logs; they stay
    .services/<name>.pid     processes and settings of a running service, readable only for the owner
    .services/s3.key         the S3 server's credentials, the same at every start

``python -m tests.real.services {start,status,stop} [NAME …]``
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from subprocess import CalledProcessError
from typing import TypeAlias

import psutil

from tests.real import kafka_server, s3_server, spark_cluster, tikv_cluster
from tests.real.processes import (
    STOP_S,
    PortTakenError,
    ServerProcess,
    ServerStartError,
    is_free,
    kill_tree,
    on_free_ports,
)
from tests.real.toolchain import MissingToolchainError
from tests.waiting import wait_until

# The keys of one block of a job file, or of each item where the block is a list.
Keys: TypeAlias = Mapping[str, str | Sequence[str]]

FOLDER = Path(__file__).parents[2] / ".services"
BUCKET = "lake"


@dataclass(frozen=True)
class Launched:
    """A started service.

    Attributes:
        processes: all its processes.
        settings: block of a job file → its keys.
    """

    processes: Sequence[ServerProcess]
    settings: Mapping[str, Keys | Sequence[Keys]]


@dataclass(frozen=True)
class Service:
    """A service that can be started.

    Attributes:
        name: of its folder and its pid file.
        ports: the default ports, used if all of them are free.
        launch: starts the service over a folder, on the same number of ports.
    """

    name: str
    ports: Sequence[int]
    launch: Callable[[Path, Sequence[int]], Launched]


@dataclass(frozen=True)
class Running:
    """Content of a pid file.

    Attributes:
        commands: process id → its command line, which identifies the process: the system reuses ids.
        settings: block of a job file → its keys.
    """

    commands: Mapping[int, Sequence[str]]
    settings: Mapping[str, Keys | Sequence[Keys]]

    @property
    def pids(self) -> list[int]:
        """Ids of the processes that still run."""
        return [pid for pid, command in self.commands.items() if _command(pid) == command]

    @property
    def is_whole(self) -> bool:
        """Whether all processes of the service still run."""
        return len(self.pids) == len(self.commands)


def start(services: Sequence[Service], folder: Path) -> list[str]:
    """Start the services that do not run yet, in parallel.

    Args:
        services: the services to start.
        folder: takes their data, logs and pid files.

    Returns:
        a message with the reason for each service that could not be started.
    """
    folder.mkdir(parents=True, exist_ok=True)

    def start_one(service: Service) -> str | None:
        try:
            _start(service, folder)
        except (MissingToolchainError, ServerStartError, CalledProcessError, OSError) as error:
            return f"{service.name}: {error}"
        return None

    with ThreadPoolExecutor(len(services)) as pool:
        return [problem for problem in pool.map(start_one, services) if problem is not None]


def stop(folder: Path) -> list[str]:
    """Stop all running services gracefully and remove the pid files; data, logs and credentials stay.

    Returns:
        the names of the services that ran.
    """
    ended = []
    for path in _pid_files(folder):
        if _end(_read(path)):
            ended.append(path.stem)
        path.unlink()
    return ended


def status(folder: Path) -> str:
    """The running services and a job file that uses them, human-readable."""
    running = {path.stem: _read(path) for path in _pid_files(folder)}
    if not running:
        return "nothing runs; start it with: make services"
    lines = [
        f"{name}: {'runs' if it.is_whole else 'does not run whole, start it again with: make services'}"
        f" (processes {', '.join(map(str, it.pids)) or 'gone'}; data and logs in {os.path.relpath(folder / name)})"
        for name, it in running.items()
    ]
    lines += ["", "A job file:", "", *job_file([it.settings for it in running.values()])]
    return "\n".join(lines)


def job_file(settings: Sequence[Mapping[str, Keys | Sequence[Keys]]]) -> list[str]:
    """Lines of a job file for running services; it works unchanged, on the existing bucket."""
    blocks: dict[str, Keys | Sequence[Keys]] = {}
    for each in settings:
        blocks |= each
    place = f"s3://{BUCKET}/services" if "storage" in blocks else ".services/lake"
    source: dict[str, str | Sequence[str]] = {"type": "files", "path": "logs", "format": "json"}
    if "source" in blocks:
        source = {**_keys(blocks["source"]), "topic_pattern": ".+", "format": "json"}
    targets: list[Keys] = [{"type": "delta", "path": f"{place}/events"}]
    if "targets" in blocks:
        given = [blocks["targets"]] if isinstance(blocks["targets"], Mapping) else blocks["targets"]
        targets += [{**keys, "prefix": "t_services_", "key": ["id"]} for keys in given]
    whole: dict[str, Keys | Sequence[Keys]] = {"source": source, "schema": {"id": "bigint"}, "targets": targets}
    whole |= {name: blocks[name] for name in ("storage", "spark") if name in blocks}
    lines = ["name: services"]
    for name, content in whole.items():
        lines += [f"{name}:", *_indented(content)]
    return lines


def _keys(content: Keys | Sequence[Keys]) -> Keys:
    return content if isinstance(content, Mapping) else content[0]


def _indented(content: Keys | Sequence[Keys]) -> list[str]:
    if isinstance(content, Mapping):
        return [f"  {key}: {json.dumps(value)}" for key, value in content.items()]
    flow = (", ".join(f"{key}: {json.dumps(value)}" for key, value in item.items()) for item in content)
    return [f"  - {{{keys}}}" for keys in flow]


def launch_kafka(folder: Path, ports: Sequence[int]) -> Launched:
    """A broker without topics."""
    server = kafka_server.launch(folder, ports)
    return Launched([server.process], {"source": {"type": "kafka", "bootstrap_servers": server.bootstrap_servers}})


def launch_s3(folder: Path, ports: Sequence[int]) -> Launched:
    """An S3 server with one bucket."""
    (folder / "data" / BUCKET).mkdir(parents=True, exist_ok=True)
    key_file = folder.parent / "s3.key"
    if not key_file.exists():
        _write_secret(key_file, json.dumps(asdict(s3_server.Credentials())))
    credentials = s3_server.Credentials(**json.loads(key_file.read_text()))
    server = s3_server.launch(folder / "data", ports[0], credentials)
    storage = {"endpoint_url": server.endpoint_url, "key": server.key, "secret": server.secret}
    return Launched([server.process], {"storage": storage})


def launch_spark(folder: Path, ports: Sequence[int]) -> Launched:
    """A master with two workers."""
    cluster = spark_cluster.launch(folder, ports)
    return Launched([*cluster.workers, cluster.master], {"spark": {"master": cluster.master_url}})


def launch_tikv(folder: Path, ports: Sequence[int]) -> Launched:
    """PD and a store that speaks TiKV's protocol; a target's prefix has to begin with t there."""
    cluster = tikv_cluster.launch(folder, ports)
    return Launched(cluster.processes, {"targets": [{"type": "tikv", "pd": cluster.pd}]})


SERVICES = {
    service.name: service
    for service in (
        Service("kafka", (9093, 9092), launch_kafka),
        Service("s3", (7070,), launch_s3),
        Service("spark", (7077, 8080), launch_spark),
        Service("tikv", (2379, 2380, 20160), launch_tikv),
    )
}


def _start(service: Service, folder: Path) -> None:
    pid_file = folder / f"{service.name}.pid"
    if pid_file.exists():
        if _read(pid_file).is_whole:
            return
        _end(_read(pid_file))
    launched = _launch(service, folder / service.name)
    # Written right after the start: a process that is in no pid file is not found again.
    commands = {process.pid: _command(process.pid) for process in launched.processes}
    _write_secret(pid_file, json.dumps({"commands": commands, "settings": launched.settings}, indent=1))


def _launch(service: Service, folder: Path) -> Launched:
    if all(is_free(port) for port in service.ports):
        try:
            return service.launch(folder, service.ports)
        except PortTakenError:
            pass
    return on_free_ports(len(service.ports), lambda ports: service.launch(folder, ports))


def _end(running: Running) -> bool:
    """End a service's processes, which end their children; returns whether any ran."""
    pids = running.pids
    for pid in pids:
        os.kill(pid, signal.SIGTERM)
    try:
        wait_until(lambda: not running.pids, "all of its processes have ended", STOP_S)
    except TimeoutError:
        for pid in running.pids:
            kill_tree(psutil.Process(pid))
    return bool(pids)


def _command(pid: int) -> list[str]:
    """The command line of a process; empty if the process does not exist."""
    try:
        return psutil.Process(pid).cmdline()
    except psutil.NoSuchProcess:
        return []


def _pid_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.pid"))


def _read(pid_file: Path) -> Running:
    body = json.loads(pid_file.read_text())
    return Running({int(pid): command for pid, command in body["commands"].items()}, body["settings"])


def _write_secret(path: Path, text: str) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)


def main() -> int:
    """Entry point; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="services", description="Kafka, S3, a Spark cluster and TiKV's protocol on loopback."
    )
    parser.add_argument("word", choices=["start", "status", "stop"])
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"which to start: {', '.join(SERVICES)}; all by default"
    )
    parser.add_argument("--folder", type=Path, default=FOLDER, help="of data, logs and pid files; default: %(default)s")
    asked = parser.parse_args()
    unknown = [name for name in asked.names if name not in SERVICES]
    if unknown:
        parser.error(f"there is no service named {', '.join(unknown)}; there are {', '.join(SERVICES)}")
    match asked.word:
        case "stop":
            print(f"ended: {', '.join(stop(asked.folder)) or 'nothing ran'}")
            return 0
        case "start":
            problems = start([SERVICES[name] for name in asked.names or SERVICES], asked.folder)
        case _:
            problems = []
    print(status(asked.folder))
    for problem in problems:
        print(f"not started: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
