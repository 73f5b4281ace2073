"""A real Spark cluster on loopback: a standalone master and workers, each a process of the installed PySpark's jars.

::

    master                             knows the workers; tells how many there are as JSON
    worker 0 ── executor ── python     one core each; an executor for each application, with its Python processes
    worker 1 ── executor ── python
"""

from __future__ import annotations

import http.client
import json
import os
import sys
import sysconfig
import urllib.error
import urllib.request
import venv
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pyspark

from tests.class_archive import java_options
from tests.real.processes import HOST, ServerProcess, on_free_ports
from tests.real.toolchain import find_java

WORKER_CORES = 1
WORKER_MEMORY = "1g"
_EXECUTOR_CLASS = "org.apache.spark.executor.CoarseGrainedExecutorBackend"


@dataclass(frozen=True)
class SparkCluster:
    """A cluster: where drivers find it, and its processes.

    Attributes:
        port: of the master.
        web_port: of the master's page.
        master: its process.
        workers: theirs, by number.
    """

    port: int
    web_port: int
    master: ServerProcess
    workers: Sequence[ServerProcess]

    @property
    def master_url(self) -> str:
        """For ``spark.master``."""
        return f"spark://{HOST}:{self.port}"

    @property
    def web_url(self) -> str:
        """The master's page, for people."""
        return f"http://{HOST}:{self.web_port}"

    @property
    def conf(self) -> dict[str, str]:
        """Settings of a driver that uses all of this cluster and nothing but loopback."""
        return {"spark.master": self.master_url, "spark.driver.host": HOST, "spark.driver.bindAddress": HOST}

    def start(self) -> None:
        """Start all of it; the workers have registered then."""
        self.master.start(lambda: {self.port, self.web_port} <= self.master.listening_ports)
        with ThreadPoolExecutor(len(self.workers)) as pool:
            list(pool.map(self.start_worker, range(len(self.workers))))

    def start_worker(self, number: int) -> None:
        """Start one worker, again after `kill_worker`; it has registered then."""
        worker = self.workers[number]
        worker.start(lambda: not worker.listening_ports.isdisjoint(self.registered_ports()))

    def kill_worker(self, number: int) -> None:
        """Lose a machine: its worker, the executors and their Python processes end at once (SIGKILL)."""
        self.workers[number].kill()

    def stop(self) -> None:
        """End all of it, applications included."""
        for process in (*self.workers, self.master):
            process.kill()

    def registered_ports(self) -> list[int]:
        """Where the workers listen that the master knows and hears from; none while it starts."""
        try:
            with urllib.request.urlopen(f"{self.web_url}/json/", timeout=5) as answer:
                workers: list[dict[str, Any]] = json.load(answer)["workers"]
        except urllib.error.HTTPError as early:
            # The port is there before its pages are.
            early.close()
            return []
        except json.JSONDecodeError:
            # The page for people is there before this one, and answers for all paths that nobody has taken.
            return []
        except (OSError, http.client.HTTPException):
            # A machine that stood still for a while: the master is asked again.
            return []
        return [worker["port"] for worker in workers if worker["state"] == "ALIVE"]

    def executors(self, number: int | None = None) -> list[psutil.Process]:
        """The executors that run now.

        Args:
            number: of a worker; those of all workers by default.
        """
        workers = self.workers if number is None else [self.workers[number]]
        return [
            child
            for worker in workers
            if worker.is_running
            for child in psutil.Process(worker.pid).children()
            if _EXECUTOR_CLASS in _arguments(child)
        ]


def launch(folder: Path, ports: Sequence[int], workers: int = 2) -> SparkCluster:
    """A started cluster.

    Args:
        folder: takes the logs, and for each worker a folder of its own.
        ports: on loopback: of the master and of its page.
        workers: how many, each of one core and 1 GiB.

    Raises:
        MissingToolchainError: there is no Java.
        PortTakenError: someone listens on one of the ports.
        ServerStartError: it does not start.
    """
    find_java("Spark")
    cluster = SparkCluster(
        ports[0],
        ports[1],
        _daemon("master", folder / "master", "--port", str(ports[0]), "--webui-port", str(ports[1])),
        [_worker(folder / f"worker-{number}", number, f"spark://{HOST}:{ports[0]}") for number in range(workers)],
    )
    try:
        cluster.start()
    except BaseException:
        cluster.stop()
        raise
    return cluster


@contextmanager
def running(folder: Path, workers: int = 2) -> Iterator[SparkCluster]:
    """A cluster on free ports until the block ends; see `launch`."""
    cluster = on_free_ports(2, lambda ports: launch(folder, ports, workers))
    try:
        yield cluster
    finally:
        cluster.stop()


def executor_python(folder: Path) -> Path:
    """A Python for executors that has the packages of this one, but not this project: it has to be shipped.

    A driver names it to its executors by PYSPARK_PYTHON in its environment; ``spark.pyspark.python`` is read by
    spark-submit alone.

    Args:
        folder: takes the environment.
    """
    venv.create(folder, with_pip=False, symlinks=True)
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    # The .pth files of a folder that is added like this are not read, so that editable installs stay unseen.
    packages = folder / "lib" / name / "site-packages" / "packages.pth"
    packages.write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin" / "python"


def _worker(folder: Path, number: int, master_url: str) -> ServerProcess:
    resources = ["--cores", str(WORKER_CORES), "--memory", WORKER_MEMORY]
    ports = ["--port", "0", "--webui-port", "0"]
    # Machines of their own to Spark: a speculative copy never runs on the host of the first attempt.
    host = f"127.0.0.{number + 2}"
    return _daemon("worker", folder, *resources, *ports, "-d", str(folder), master_url, host=host)


def _daemon(role: str, folder: Path, *arguments: str, host: str = HOST) -> ServerProcess:
    home = Path(pyspark.__file__).parent
    # What a developer has set for drivers of his own must not reach executors.
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_", "PYTHON"))
    }
    environment = inherited | {
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": host,
        "SPARK_DAEMON_MEMORY": "256m",
        # A taken port is an error, not a reason to listen on the next one; and the master's REST server has always the
        # same port: of two masters on a machine one would register no workers.
        "SPARK_DAEMON_JAVA_OPTS": "-Dspark.port.maxRetries=0 -Dspark.master.rest.enabled=false",
        # Executors have it from their worker.
        "JDK_JAVA_OPTIONS": java_options(),
    }
    command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{role}.{role.capitalize()}"]
    process = [*command, "--host", host, *arguments]
    return ServerProcess(f"Spark's {role}", process, folder / f"{role}.log", environment)


def _arguments(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []
