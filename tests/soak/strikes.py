"""Single faults, each at a random moment of whatever the job does then: processes killed, frozen, started twice.

A strike ends when the broken part works again, or can recover by itself.
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
"""Timeout for the end of a command that has a reason to end."""


STEPS = tuple(point for point in COMMON_POINTS if not point.startswith(("task", "file")))
"""Steps of drivers and recoveries; steps of tasks are in other processes."""

EPOCH_STEPS = tuple(step for step in STEPS if not step.startswith("rollback") and step != "part-aborted")
"""Steps that a driver passes in every epoch."""


class StrikeError(Exception):
    """The expected effect of a strike did not come in time: the job breaks a promise."""


@dataclass(frozen=True)
class Scene:
    """Targets of strikes.

    Attributes:
        world: servers.
        supervisor: commands.
        diary: records each action.
    """

    world: World
    supervisor: Supervisor
    diary: Diary

    def writer_pid(self) -> int:
        """Id of the process that took the timeline's lease last; 0 where there is none."""
        writer = latest_writer(self.world.timeline, Retry())
        return writer.process.pid if writer is not None else 0

    def expect_end(self, command: Command) -> None:
        """Wait for the end of a command that has no reason to go on.

        Raises:
            StrikeError: the command goes on.
        """
        if not command.has_ended_within(_END_S):
            raise StrikeError(f"{command.name} still runs after {_END_S:.0f} s")

    def expect_yield(self, driver: Command) -> None:
        """Wait for the end of a surplus driver; stop it if it has become the writer.

        Raises:
            TimeoutError: the driver goes on though another one has the lease.
            StrikeError: the stopped driver goes on.
        """
        wait_until(lambda: driver.code is not None or self.writer_pid() == driver.pid, f"{driver.name} ends", _END_S)
        if driver.code is None:
            driver.stop()
        self.expect_end(driver)


Strike: TypeAlias = Callable[[Scene, random.Random], None]


def kill_driver(scene: Scene, draw: random.Random) -> None:
    """Kill the driver's process alone; its JVM and its tasks notice by themselves."""
    scene.supervisor.driver().kill()


def kill_jvm(scene: Scene, draw: random.Random) -> None:
    """Kill Spark's JVM, once it runs."""
    _kill_one(scene, draw, "java")


def kill_worker(scene: Scene, draw: random.Random) -> None:
    """Kill one of Spark's Python processes, once there are any."""
    _kill_one(scene, draw, "python")


def _kill_one(scene: Scene, draw: random.Random, name: str) -> None:
    driver = scene.supervisor.driver()
    with contextlib.suppress(TimeoutError):  # the driver may have no reason to start one
        wait_until(lambda: driver.code is not None or bool(driver.processes(name)), name, _PROCESS_S)
    processes = driver.processes(name)
    if processes:
        process = draw.choice(processes)
        scene.diary.note(f"killing {name}, process {process.pid}")
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def kill_at_a_step(scene: Scene, draw: random.Random) -> None:
    """Kill the driver, and the next one at a step of the protocol: few steps are long enough to be hit by chance."""
    driver = scene.supervisor.replace_driver({"TIDELINE_CRASH_AT": _step(draw, EPOCH_STEPS)})
    driver.has_ended_within(_STEP_S)


def freeze_driver(scene: Scene, draw: random.Random) -> None:
    """Freeze the driver; its tasks go on writing while another driver takes over. Woken, it must notice and end."""
    frozen = scene.supervisor.driver()
    frozen.freeze()
    _take_over(scene, draw, frozen)


def freeze_machine(scene: Scene, draw: random.Random) -> None:
    """Freeze the driver with its tasks, in the middle of their writes; otherwise as `freeze_driver`."""
    frozen = scene.supervisor.driver()
    frozen.freeze_all()
    _take_over(scene, draw, frozen)


def freeze_at_a_step(scene: Scene, draw: random.Random) -> None:
    """Freeze a driver at a step of the protocol, and kill it if it does not reach the step in time.

    That driver must not go on: it would freeze in the middle of a later strike, which would wait for it.
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
    time.sleep(draw.uniform(0.0, 6.0))  # the new driver recovers, and begins
    frozen.wake_all()
    scene.diary.note(f"woke {frozen.name}")
    scene.expect_yield(frozen)


def start_twice(scene: Scene, draw: random.Random) -> None:
    """Start a second driver beside the first one."""
    scene.expect_yield(scene.supervisor.start("run", "--continuous"))


def recover_by_force(scene: Scene, draw: random.Random) -> None:
    """Take the timeline from a driver that works."""
    scene.expect_end(scene.supervisor.start("recover", "--force"))


def kill_recovery(scene: Scene, draw: random.Random) -> None:
    """Kill a driver, then its recovery, at a step of the protocol or somewhere between its imports and its end."""
    scene.supervisor.driver().kill()
    recovery = scene.supervisor.start("recover", "--force", arms={"TIDELINE_CRASH_AT": _step(draw, STEPS)})
    recovery.has_ended_within(draw.uniform(0.5, 4.0))
    recovery.kill()


def recover_twice(scene: Scene, draw: random.Random) -> None:
    """Kill a driver; two recoveries and the next driver run at once."""
    scene.supervisor.driver().kill()
    for recovery in [scene.supervisor.start("recover", "--force") for _ in range(2)]:
        scene.expect_end(recovery)


def kill_broker(scene: Scene, draw: random.Random) -> None:
    """Kill the broker, and start it again up to 4 s later."""
    scene.world.kafka.kill()
    time.sleep(draw.uniform(0.0, 4.0))
    scene.world.kafka.start()


def freeze_broker(scene: Scene, draw: random.Random) -> None:
    """Freeze the broker: it accepts connections, and does not answer."""
    broker = psutil.Process(scene.world.kafka.process.pid)
    broker.suspend()
    time.sleep(draw.uniform(1.0, 8.0))
    broker.resume()


def kill_s3(scene: Scene, draw: random.Random) -> None:
    """Kill the object store, and start it again up to 4 s later."""
    scene.world.s3.kill()
    time.sleep(draw.uniform(0.0, 4.0))
    scene.world.s3.start()


def stop_everything(scene: Scene, draw: random.Random) -> None:
    """Stop driver and servers in order, and start them again."""
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
"""Every strike by name."""

CARDS = (*STRIKES, *(name for name in STRIKES if name.endswith("at a step")))
"""The deck: strikes at a step come twice as often."""
