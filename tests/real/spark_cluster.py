"""A real Spark cluster on loopback: a standalone master and workers, each a process of the installed PySpark's jars.

::

    master                             knows the workers; lists them as JSON
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
    """A cluster: its ports and processes.

    Attributes:
        port: of the master.
        web_port: of the master's web UI.
        master: the master's process.
        workers: the workers' processes, by number.
    """

    port: int
    web_port: int
    master: ServerProcess
    workers: Sequence[ServerProcess]

    @property
    def master_url(self) -> str:
        """The URL for ``spark.master``."""
        return f"spark://{HOST}:{self.port}"

    @property
    def web_url(self) -> str:
        """The URL of the master's web UI."""
        return f"http://{HOST}:{self.web_port}"

    @property
    def conf(self) -> dict[str, str]:
        """Settings of a driver that uses the whole cluster, on loopback only."""
        return {"spark.master": self.master_url, "spark.driver.host": HOST, "spark.driver.bindAddress": HOST}

    def start(self) -> None:
        """Start master and workers; returns when the workers have registered."""
        self.master.start(lambda: {self.port, self.web_port} <= self.master.listening_ports)
        with ThreadPoolExecutor(len(self.workers)) as pool:
            list(pool.map(self.start_worker, range(len(self.workers))))

    def start_worker(self, number: int) -> None:
        """Start or restart one worker; returns when it has registered."""
        worker = self.workers[number]
        worker.start(lambda: not worker.listening_ports.isdisjoint(self.registered_ports()))

    def kill_worker(self, number: int) -> None:
        """Simulate the loss of a machine: kill its worker, executors and their Python processes (SIGKILL)."""
        self.workers[number].kill()

    def stop(self) -> None:
        """Kill the whole cluster, applications included."""
        for process in (*self.workers, self.master):
            process.kill()

    def registered_ports(self) -> list[int]:
        """Ports of the workers that the master reports as alive; none while the master starts."""
        try:
            with urllib.request.urlopen(f"{self.web_url}/json/", timeout=5) as answer:
                workers: list[dict[str, Any]] = json.load(answer)["workers"]
        except urllib.error.HTTPError as early:
            # The port is open before its pages exist.
            early.close()
            return []
        except json.JSONDecodeError:
            # The HTML page exists before this one, and answers for all unregistered paths.
            return []
        except (OSError, http.client.HTTPException):
            # The machine stalled for a while: the caller asks the master again.
            return []
        return [worker["port"] for worker in workers if worker["state"] == "ALIVE"]

    def executors(self, number: int | None = None) -> list[psutil.Process]:
        """The running executors.

        Args:
            number: of a worker; by default the executors of all workers.
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
        folder: takes the logs, and a folder for each worker.
        ports: on loopback: of the master and of its web UI.
        workers: number of workers, each with one core and 1 GiB.

    Raises:
        MissingToolchainError: there is no Java.
        PortTakenError: another process listens on one of the ports.
        ServerStartError: the cluster does not start.
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
    """A Python for executors with the packages of this one, but without this project, which has to be shipped.

    A driver passes its path to executors by PYSPARK_PYTHON in its environment; only spark-submit reads
    ``spark.pyspark.python``.

    Args:
        folder: takes the virtual environment.
    """
    venv.create(folder, with_pip=False, symlinks=True)
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    # Python does not read the .pth files of a folder that is added like this, so editable installs stay hidden.
    packages = folder / "lib" / name / "site-packages" / "packages.pth"
    packages.write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin" / "python"


def _worker(folder: Path, number: int, master_url: str) -> ServerProcess:
    resources = ["--cores", str(WORKER_CORES), "--memory", WORKER_MEMORY]
    ports = ["--port", "0", "--webui-port", "0"]
    # A host of its own per worker: a speculative copy never runs on the host of the first attempt.
    host = f"127.0.0.{number + 2}"
    return _daemon("worker", folder, *resources, *ports, "-d", str(folder), master_url, host=host)


def _daemon(role: str, folder: Path, *arguments: str, host: str = HOST) -> ServerProcess:
    home = Path(pyspark.__file__).parent
    # A developer's own Spark and Python variables must not reach executors.
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_", "PYTHON"))
    }
    environment = inherited | {
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": host,
        "SPARK_DAEMON_MEMORY": "256m",
        # A taken port is an error, no reason to try the next one. The master's REST server always has the same port:
        # of two masters on a machine one would register no workers.
        "SPARK_DAEMON_JAVA_OPTS": "-Dspark.port.maxRetries=0 -Dspark.master.rest.enabled=false",
        # Executors inherit the options from their worker.
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
