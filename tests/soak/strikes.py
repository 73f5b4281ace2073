"""Single faults, each at a random moment of whatever the job does then: processes killed, frozen, started twice.

A strike ends when what it broke is there again, or can come back by itself.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import psutil

from tests.soak.commands import Command
from tests.soak.diary import Diary
from tests.soak.supervisor import Supervisor
from tests.soak.world import LEASE_TTL_S, World
from tests.waiting import wait_until
from timeline.failpoints import COMMON_POINTS
from timeline.lease import latest_writer
from timeline.stores.base import Retry

_PROCESS_S = 20.0
_STEP_S = 40.0
_END_S = 120.0
"""Within which a command has to end that has a reason to."""


STEPS = tuple(point for point in COMMON_POINTS if not point.startswith(("task", "file")))
"""Steps of drivers and recoveries; those of tasks are in other processes."""

EPOCH_STEPS = tuple(step for step in STEPS if not step.startswith("rollback") and step != "part-aborted")
"""Steps that a driver passes in every epoch."""


class StrikeError(Exception):
    """What a strike waited for did not come: the job does not do as promised."""


@dataclass(frozen=True)
class Scene:
    """What strikes act on.

    Attributes:
        world: servers.
        supervisor: commands.
        diary: is told what is done.
    """

    world: World
    supervisor: Supervisor
    diary: Diary

    def writer_pid(self) -> int:
        """The process that took the timeline's lease last; 0 where nobody did."""
        writer = latest_writer(self.world.timeline, Retry())
        return writer.process.pid if writer is not None else 0

    def expect_end(self, command: Command) -> None:
        """Wait for the end of a command that has no reason to go on.

        Raises:
            StrikeError: it goes on.
        """
        if not command.has_ended_within(_END_S):
            raise StrikeError(f"{command.name} still runs after {_END_S:.0f} s")

    def expect_yield(self, driver: Command) -> None:
        """Wait for the end of one driver too many; one that has become the writer is told to end.

        Raises:
            StrikeError: it goes on though another one has the lease.
        """
        wait_until(lambda: driver.code is not None or self.writer_pid() == driver.pid, f"{driver.name} ends", _END_S)
        if driver.code is None:
            driver.stop()
        self.expect_end(driver)


Strike: TypeAlias = Callable[[Scene, random.Random], None]


def kill_driver(scene: Scene, draw: random.Random) -> None:
    """The driver's process alone; its JVM and its tasks find out by themselves."""
    scene.supervisor.driver().kill()


def kill_jvm(scene: Scene, draw: random.Random) -> None:
    """Spark's JVM, once it is there."""
    _kill_one(scene, draw, "java")


def kill_worker(scene: Scene, draw: random.Random) -> None:
    """One of Spark's Python processes, once there are any."""
    _kill_one(scene, draw, "python")


def _kill_one(scene: Scene, draw: random.Random, name: str) -> None:
    driver = scene.supervisor.driver()
    with contextlib.suppress(TimeoutError):  # it may have no reason to start any
        wait_until(lambda: driver.code is not None or bool(driver.processes(name)), name, _PROCESS_S)
    processes = driver.processes(name)
    if processes:
        process = draw.choice(processes)
        scene.diary.note(f"killing {name}, process {process.pid}")
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def kill_at_a_step(scene: Scene, draw: random.Random) -> None:
    """The driver, and the next one at some step of the protocol: few are long enough to be hit by chance."""
    driver = scene.supervisor.replace_driver({"TIDELINE_CRASH_AT": _step(draw, EPOCH_STEPS)})
    driver.has_ended_within(_STEP_S)


def freeze_driver(scene: Scene, draw: random.Random) -> None:
    """Its tasks go on writing while another driver takes over; woken, it must notice and end."""
    frozen = scene.supervisor.driver()
    frozen.freeze()
    _take_over(scene, draw, frozen)


def freeze_machine(scene: Scene, draw: random.Random) -> None:
    """The same, and its tasks are frozen with it, in whatever they were writing."""
    frozen = scene.supervisor.driver()
    frozen.freeze_all()
    _take_over(scene, draw, frozen)


def freeze_at_a_step(scene: Scene, draw: random.Random) -> None:
    """The same, at some step of the protocol; a driver that does not get there in time is killed.

    It must not go on: it would freeze in the middle of a later strike, which would wait for it.
    """
    frozen = scene.supervisor.replace_driver({"TIDELINE_FREEZE_AT": _step(draw, EPOCH_STEPS)})
    with contextlib.suppress(TimeoutError):
        wait_until(lambda: frozen.is_frozen or frozen.code is not None, "it is frozen", _STEP_S)
    if frozen.is_frozen:
        _take_over(scene, draw, frozen)
    else:
        frozen.kill()


def _step(draw: random.Random, steps: Sequence[str]) -> str:
    return f"{draw.choice(steps)}:{draw.randint(1, 3)}"


def _take_over(scene: Scene, draw: random.Random, frozen: Command) -> None:
    scene.supervisor.set_aside(frozen)
    time.sleep(LEASE_TTL_S * draw.uniform(1.0, 1.5))
    wait_until(lambda: scene.writer_pid() != frozen.pid, f"{frozen.name}, which is frozen, is taken over", _END_S)
    time.sleep(draw.uniform(0.0, 6.0))  # the other one recovers, and begins
    frozen.wake_all()
    scene.diary.note(f"woke {frozen.name}")
    scene.expect_yield(frozen)


def start_twice(scene: Scene, draw: random.Random) -> None:
    """A second driver beside the first one."""
    scene.expect_yield(scene.supervisor.start("run", "--continuous"))


def recover_by_force(scene: Scene, draw: random.Random) -> None:
    """The timeline is taken from a driver that works."""
    scene.expect_end(scene.supervisor.start("recover", "--force"))


def kill_recovery(scene: Scene, draw: random.Random) -> None:
    """A driver is killed, and the recovery from that too, at some step or somewhere between its imports and its end."""
    scene.supervisor.driver().kill()
    recovery = scene.supervisor.start("recover", "--force", arms={"TIDELINE_CRASH_AT": _step(draw, STEPS)})
    recovery.has_ended_within(draw.uniform(0.5, 4.0))
    recovery.kill()


def recover_twice(scene: Scene, draw: random.Random) -> None:
    """A driver is killed; two recoveries and its successor are at it at once."""
    scene.supervisor.driver().kill()
    for recovery in [scene.supervisor.start("recover", "--force") for _ in range(2)]:
        scene.expect_end(recovery)


def kill_broker(scene: Scene, draw: random.Random) -> None:
    """The broker is gone for seconds."""
    scene.world.kafka.kill()
    time.sleep(draw.uniform(0.0, 4.0))
    scene.world.kafka.start()


def freeze_broker(scene: Scene, draw: random.Random) -> None:
    """The broker takes connections, and says nothing."""
    broker = psutil.Process(scene.world.kafka.process.pid)
    broker.suspend()
    time.sleep(draw.uniform(1.0, 8.0))
    broker.resume()


def kill_s3(scene: Scene, draw: random.Random) -> None:
    """The object store is gone for seconds."""
    scene.world.s3.kill()
    time.sleep(draw.uniform(0.0, 4.0))
    scene.world.s3.start()


def stop_everything(scene: Scene, draw: random.Random) -> None:
    """Driver and servers are stopped in order, and started again."""
    driver = scene.supervisor.pause()
    if driver is not None:
        driver.stop()
        scene.expect_end(driver)
    for server in (scene.world.kafka, scene.world.s3):
        server.stop()
    for server in (scene.world.kafka, scene.world.s3):
        server.start()
    scene.supervisor.resume()


STRIKES: Mapping[str, Strike] = {
    "kill the driver": kill_driver,
    "kill the JVM": kill_jvm,
    "kill a Python worker": kill_worker,
    "kill the driver at a step": kill_at_a_step,
    "freeze the driver": freeze_driver,
    "freeze the driver at a step": freeze_at_a_step,
    "freeze the driver's machine": freeze_machine,
    "start a second driver": start_twice,
    "recover by force": recover_by_force,
    "kill a recovery": kill_recovery,
    "recover twice at once": recover_twice,
    "kill the broker": kill_broker,
    "freeze the broker": freeze_broker,
    "kill the S3 server": kill_s3,
    "stop everything": stop_everything,
}
"""Every strike."""

CARDS = (*STRIKES, *(name for name in STRIKES if name.endswith("at a step")))
"""What is drawn: those that aim come twice as often."""
