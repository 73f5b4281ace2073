"""One soak from the first record to the verdict."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.soak import weather
from tests.soak.decks import deck
from tests.soak.diary import Diary
from tests.soak.strikes import CARDS, STRIKES, Scene, StrikeError
from tests.soak.supervisor import Supervisor
from tests.soak.verdict import judge
from tests.soak.world import World, opened
from timeline.active import ActiveTimeline
from timeline.errors import StoreError
from timeline.instant import Action
from timeline.stores.base import Retry

_PROGRESS_S = 10.0
_STRIKES_A_BREATH = 3
_BREATH_S = 180.0
_LOOK_S = 0.5
_SETTLE_S = 600.0


class Soak:
    """A job, a seed, and the duration of faults."""

    def __init__(self, folder: Path, seed: int, minutes: float) -> None:
        """Start nothing yet.

        Args:
            folder: for all data and logs.
            seed: of all random choices.
            minutes: duration of faults.
        """
        self._folder = folder
        self._seed = seed
        self._minutes = minutes
        self._problems: list[str] = []
        self._faults = 0

    def run(self) -> bool:
        """Run the soak; whether there were no problems. The last line printed has the counts."""
        diary = Diary(self._folder / "faults.log")
        diary.note(f"seed {self._seed}, {self._minutes:g} minutes")
        commands = self._folder / "commands"
        commands.mkdir()
        with opened(self._folder, self._seed) as world:
            scene = Scene(world, Supervisor(world.job, commands, diary), diary)
            try:
                for step in (self._endure, self._settle):
                    try:
                        step(scene)
                    except (StrikeError, TimeoutError) as error:
                        self._problems.append(str(error))
            finally:
                scene.supervisor.kill_all()
            self._problems += scene.supervisor.complaints
            verdict = judge(world)
        self._problems += verdict.problems
        for problem in self._problems:
            diary.note(f"problem: {problem}")
            print(f"problem: {problem}")
        if self._problems:
            print(f"kept: {self._folder}: faults.log, commands/; again: make soak SEED={self._seed}")
        print(
            f"rows={verdict.rows} faults={self._faults} lost={verdict.lost} duplicate={verdict.duplicate} "
            f"orphans={len(verdict.orphans)}",
            flush=True,
        )
        return not self._problems

    def _endure(self, scene: Scene) -> None:
        """Run the job under faults until their time is over."""
        stop = threading.Event()
        with ThreadPoolExecutor(2) as pool:
            supervising = pool.submit(scene.supervisor.run, stop)
            spells = pool.submit(weather.run, scene.world.proxy, self._draw("weather"), scene.diary, stop)
            try:
                self._strike(scene, lambda: supervising.done() or spells.done())
            finally:
                stop.set()
                self._faults += spells.result()
                supervising.result()

    def _strike(self, scene: Scene, is_broken: Callable[[], bool]) -> None:
        draw = self._draw("strikes")
        began = time.monotonic()
        shown = began
        epochs = 0
        for number, name in enumerate(deck(CARDS, draw), start=1):
            time.sleep(draw.uniform(2.0, 8.0))
            now = time.monotonic()
            if now - began > self._minutes * 60 or scene.supervisor.complaints or is_broken():
                return
            if now - shown >= _PROGRESS_S:
                shown = now
                self._show(scene, now - began)
            self._faults += 1
            scene.diary.note(f"strike: {name}")
            STRIKES[name](scene, draw)
            scene.diary.note(f"strike over: {name}")
            if number % _STRIKES_A_BREATH == 0:
                epochs = self._wait_for_more_than(epochs, scene)

    def _wait_for_more_than(self, epochs: int, scene: Scene) -> int:
        """Wait for more completed epochs, however slow this machine is; the weather goes on. Returns the new number.

        Raises:
            StrikeError: no further epoch was completed in `_BREATH_S` seconds.
        """
        deadline = time.monotonic() + _BREATH_S
        while (completed := _completed_epochs(scene.world)) <= epochs and not scene.supervisor.complaints:
            if time.monotonic() > deadline:
                raise StrikeError(f"no further epoch than {epochs} were completed in {_BREATH_S:.0f} s")
            time.sleep(_LOOK_S)
        return completed

    def _show(self, scene: Scene, elapsed_s: float) -> None:
        codes = ", ".join(f"{code}: {times}" for code, times in sorted(scene.supervisor.codes.items()))
        print(
            f"{elapsed_s:5.0f} s of {self._minutes * 60:.0f}, {self._faults} strikes, "
            f"{_completed_epochs(scene.world)} epochs, ended with code {codes or '-'}; {scene.diary.last}",
            flush=True,
        )

    def _settle(self, scene: Scene) -> None:
        """Stop the producer and kill the driver once more; a recovery and a run without faults finish the work."""
        world, supervisor = scene.world, scene.supervisor
        world.producer.stop()
        supervisor.pause()
        supervisor.kill_drivers()
        world.proxy.drain()
        for arguments in (["recover"], ["run", "--once"]):
            command = supervisor.start(*arguments)
            if not command.has_ended_within(_SETTLE_S):
                self._problems.append(f"{command.name} does not end")
            elif command.code != 0:
                self._problems.append(f"{command.name} ended with code {command.code} though there are no faults")
            supervisor.look()
        scene.diary.note("settled")

    def _draw(self, of: str) -> random.Random:
        """A separate generator for each thread, so that none depends on the speed of the others."""
        return random.Random(f"{self._seed} {of}")


def _completed_epochs(world: World) -> int:
    try:
        return len(ActiveTimeline.load(world.timeline, Retry()).completed().by_action(Action.COMMIT).instants)
    except StoreError:
        return -1
