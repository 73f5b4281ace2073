"""A job on a log that is written continuously and rotated by the real logrotate: every line arrives once."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path

import pytest

from tests.conftest import or_absent
from tests.job import Job
from tests.real.toolchain import apt_install

pytestmark = [pytest.mark.real, pytest.mark.slow]

ROTATIONS = 6
DEADLINE_S = 90

MODES = {
    "create": "create",
    "nocreate": "nocreate\ncompress",
    "compress": "create\ncompress",
    "delaycompress": "create\ncompress\ndelaycompress",
    "dateext": "create\ncompress\ndateext\ndateformat -%Y%m%d-%s",
    "extension": "create\ncompress\nextension .jsonl",
    "copy": "copy\ncompress",
    "copytruncate": "copytruncate",
    "copytruncate-compress": "copytruncate\ncompress",
    "renamecopy": "renamecopy\ncompress\nolddir old",
    "olddir": "create\ncompress\nolddir old",
    "zstd": "create\ncompress\ncompresscmd {zstd}\ncompressext .zst",
    "rotate": "create\nrotate 1",
    "maxage": "create\nmaxage 1",
}

DELETING = ("rotate", "maxage")
"""Modes that delete logs, read or not; a log that is deleted unread is reported and lost."""

LOSE_NOTHING = ("create", "copy", "delaycompress", *DELETING)
"""Modes that lose no line that is written during the rotation."""


@pytest.fixture(scope="module")
def logrotate() -> str:
    """Path of the program; installed if missing and this process is root."""
    with or_absent():
        for package in ("logrotate", "zstd"):
            if shutil.which(package) is None and not Path("/usr/sbin", package).exists():
                apt_install(package, "rotating logs as servers do")
    return shutil.which("logrotate") or "/usr/sbin/logrotate"


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    made = Job(tmp_path)
    yield made
    made.close()


class Writer:
    """Appends numbered lines until `stop`; `count` is their number so far."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.count = 0
        self.between_lines = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self.run)

    def run(self) -> None:
        while not self._stop.wait(0.005):
            with self.between_lines, self.path.open("a") as file:
                numbers = range(self.count, self.count + 20)
                file.writelines(json.dumps({"id": number, "host": "h"}) + "\n" for number in numbers)
                self.count += 20

    @contextmanager
    def writing(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self.stop()

    def stop(self) -> None:
        """Stop writing."""
        self._stop.set()
        self._thread.join()


def wait_until(is_reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not is_reached() and time.monotonic() < deadline:
        time.sleep(0.2)


@pytest.mark.parametrize("mode", MODES)
def test_every_line_arrives_once_beside_logrotate(job: Job, logrotate: str, mode: str) -> None:
    log = job.folder / "logs" / "app.jsonl"
    job.write(source=job.source(path=f"{job.folder}/logs/**/app*", close_after="1s"))
    (job.folder / "logs" / "old").mkdir()
    rules = MODES[mode].format(zstd=shutil.which("zstd")).replace("olddir old", f"olddir {log.parent}/old")
    settings = job.folder / "logrotate.conf"
    settings.write_text(f"{log} {{\nsu root root\nrotate 50\nmissingok\n{rules}\n}}\n")
    settings.chmod(0o644)
    writer = Writer(log)
    with ThreadPoolExecutor(1) as reading, writer.writing(), ExitStack() as at_end:
        running = job.start("run", "--continuous")
        at_end.callback(running.kill)
        said = reading.submit(running.communicate)  # a full pipe on stderr blocks the job
        # Lines without timestamps: a small copy that the log outgrew before the job read it would count as another log.
        wait_until(lambda: job.ids().total() > 0 or running.poll() is not None)
        for _ in range(ROTATIONS):
            time.sleep(1.1)
            if mode in DELETING:
                reached = writer.count
                wait_until(lambda: len(job.ids()) >= reached or running.poll() is not None)  # noqa: B023
                for rotated in log.parent.glob("app.jsonl.*"):
                    os.utime(rotated, (1.0e9, 1.0e9))  # for maxage: more than a day ago
            # A line that is written after logrotate has read the log is lost before the job can read it.
            with nullcontext() if mode in LOSE_NOTHING else writer.between_lines:
                state = str(job.folder / "state")
                done = subprocess.run([logrotate, "-f", "-s", state, settings], capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
        writer.stop()
        wait_until(lambda: len(job.ids()) >= writer.count or running.poll() is not None)
        if running.poll() is None:
            running.send_signal(signal.SIGTERM)
        _, err = said.result(DEADLINE_S)
    assert running.returncode == 0, err
    found = len(list(log.parent.rglob("app*")))
    assert found == 2 if mode in DELETING else found > ROTATIONS / 2, "nothing was rotated, or deleted"
    assert job.ids() == Counter(range(writer.count))
