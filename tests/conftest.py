"""Hooks and fixtures of all tests: where they may run, and the servers of the session."""

from __future__ import annotations

import logging
import os
import shlex
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import hypothesis
import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from tests import class_archive, sampling, turns
from tests.once import once_a_run
from tests.real import kafka_server, s3_server, tikv_cluster
from tests.real import spark_cluster as cluster
from tests.real.certificates import issue
from tests.real.kafka_server import KafkaServer
from tests.real.s3_server import S3Server
from tests.real.spark_cluster import SparkCluster
from tests.real.tikv_cluster import TikvCluster
from tests.real.toolchain import MissingToolchainError

hypothesis.settings.register_profile("tideline", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
"""No deadline for an example: on a busy machine a single one takes seconds."""


def pytest_configure() -> None:
    """Set up state that child processes inherit.

    A runner in the background would pass an ignored SIGINT on to them.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    class_archive.use()
    hypothesis.settings.load_profile("tideline")
    sampling.settle_seed()


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """Tests that share a server share a worker."""
    return turns.Turns(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Check the group of each test, and sort the longest groups first."""
    for item in items:
        turns.check(item)
    items.sort(key=turns.turn_of)


def pytest_report_header() -> str:
    """The seed, so that a run can be repeated."""
    return f"seed: {sampling.seed()} (of the commit, unless SEED= says another; the same seed draws the same)"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print a command for each failed test that runs it again, alone."""
    reports = [report for kind in ("failed", "error") for report in terminalreporter.stats.get(kind, [])]
    failed = dict.fromkeys(report.nodeid for report in reports)
    if failed:
        terminalreporter.section("each of them again, alone")
    for name in failed:
        terminalreporter.line(f"SEED={sampling.seed()} .venv/bin/python -m pytest {shlex.quote(name)}")


def absent(reason: str) -> NoReturn:
    """Skip a test by name where a toolchain or data is missing; in CI nothing may be missing, so it fails there."""
    if os.environ.get("CI", "").lower() in ("", "0", "false"):
        pytest.skip(reason)
    pytest.fail(f"missing in CI: {reason}")


@pytest.fixture(autouse=True)
def own_logging() -> Iterator[None]:
    """Restore logging after each test: commands and linters that run in this process configure it."""
    loggers = [logging.getLogger(name) for name in (None, "timeline", "sinks", "ingest", "py.warnings")]
    before = [(logger.handlers[:], logger.level, logger.propagate) for logger in loggers]
    yield
    logging.disable(logging.NOTSET)
    logging.captureWarnings(False)
    for logger, (handlers, level, propagate) in zip(loggers, before, strict=True):
        logger.handlers[:], logger.propagate = handlers, propagate
        logger.setLevel(level)
    for known in logging.root.manager.loggerDict.values():
        if isinstance(known, logging.Logger):
            known.disabled = False


@pytest.fixture(scope="session")
def logs() -> Path:
    """The folder of the real logs: ``LOGS``, or the data beside the repository."""
    folder = Path(os.environ.get("LOGS", Path(__file__).parents[2] / "shared" / "data"))
    if not (folder / "apache_access.log").is_file():
        absent(f"the real logs are not in {folder}; set LOGS to their folder")
    return folder


@contextmanager
def or_absent() -> Iterator[None]:
    """Skip, or fail in CI, where a server cannot be built here."""
    try:
        yield
    except MissingToolchainError as missing:
        absent(str(missing))


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """One S3 server for the run, with a bucket named ``lake`` in which each test has a prefix of its own."""
    folder = tmp_path_factory.mktemp("s3") / "data"
    (folder / "lake").mkdir(parents=True)
    with or_absent(), once_a_run("s3", folder_of_the_run(tmp_path_factory), lambda: s3_server.running(folder)) as s3:
        yield s3


def folder_of_the_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A temporary folder that all workers share."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="session")
def s3_tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """An S3 server that speaks TLS only, with a bucket named ``lake``, for the session."""
    folder = tmp_path_factory.mktemp("s3-tls") / "data"
    (folder / "lake").mkdir(parents=True)
    with or_absent(), s3_server.running(folder, issue(folder.parent / "certificates")) as server:
        yield server


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """One Kafka broker for the session, with listeners of every kind; a test that ends it starts it again."""
    with or_absent(), kafka_server.running(tmp_path_factory.mktemp("kafka"), secured=True) as server:
        yield server


@pytest.fixture(scope="session")
def tikv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TikvCluster]:
    """One TiKV-protocol cluster for the session; keys begin with ``t``, and a test that ends a part starts it again."""
    with or_absent(), tikv_cluster.running(tmp_path_factory.mktemp("tikv")) as running:
        yield running


@pytest.fixture(scope="session")
def tikv_tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TikvCluster]:
    """A TiKV-protocol cluster that lets in clients with a certificate only, for the session."""
    folder = tmp_path_factory.mktemp("tikv-tls")
    with or_absent(), tikv_cluster.running(folder, certificates=issue(folder / "certificates")) as running:
        yield running


@pytest.fixture(scope="session")
def spark_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """One Spark cluster with two workers for the session; a test that ends a worker starts it again."""
    with or_absent(), cluster.running(tmp_path_factory.mktemp("spark-cluster")) as running:
        yield running
