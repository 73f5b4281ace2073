"""The probe recognizes a store without put-if-absent, whatever calls and replies are lost."""

from __future__ import annotations

import contextlib
import itertools

import pytest

from tests.contract.broken_stores import Unreachable
from tests.unit.timeline.scripted_store import AT_ONCE, Call, Fault, ScriptedStore, delayed, lost_reply, no_answer
from timeline.errors import AlreadyExistsError, ConfigError, StoreUnavailableError
from timeline.stores.base import ObjectStore, size_of
from timeline.stores.memory import MemoryStore
from timeline.stores.probe import PROBE, probe_exclusive_creation


def let_through(call: Call) -> None:
    """A fault that lets the call through."""
    call()


def killed(call: Call) -> None:
    """A fault: the call takes effect, and its caller is killed."""
    with contextlib.suppress(AlreadyExistsError):
        call()
    raise KeyboardInterrupt


class Forgetful(MemoryStore):
    """Replaces existing objects, like a store that ignores the condition."""

    def put_if_absent(self, path: str, body: bytes) -> None:
        self.put(path, body)


class Pretending(MemoryStore):
    """Reports that the object exists, and still replaces it."""

    def put_if_absent(self, path: str, body: bytes) -> None:
        exists = size_of(self, path) is not None
        self.put(path, body)
        if exists:
            raise AlreadyExistsError(path)


def paths(store: ObjectStore) -> list[str]:
    return [info.path for info in store.list("", recursive=True)]


def test_store_with_put_if_absent_passes_by_three_requests() -> None:
    store = ScriptedStore()
    probe_exclusive_creation(store, AT_ONCE)
    assert store.calls == {"put_if_absent": 2, "get": 1}


def test_starts_that_are_killed_in_the_middle_of_the_probe_leave_no_more_than_one_object() -> None:
    store = MemoryStore()
    for killed_at in (1, 2):
        for _ in range(3):
            dying = ScriptedStore(store)
            dying.fail("put_if_absent", *[let_through] * (killed_at - 1), killed)
            with pytest.raises(KeyboardInterrupt):
                probe_exclusive_creation(dying, AT_ONCE)
    probe_exclusive_creation(store, AT_ONCE)
    assert paths(store) == [PROBE]


@pytest.mark.parametrize("inner", [Forgetful(), Pretending()])
def test_store_without_put_if_absent_is_refused_and_nothing_stays(inner: MemoryStore) -> None:
    with pytest.raises(ConfigError, match=r"second of two creators .*If-None-Match.*check-store"):
        probe_exclusive_creation(inner, AT_ONCE)
    assert inner.objects == {}


@pytest.mark.parametrize("faults", list(itertools.product([let_through, no_answer, lost_reply], repeat=3)))
@pytest.mark.parametrize("inner", [MemoryStore, Forgetful])
def test_lost_calls_and_replies_change_no_verdict(inner: type[MemoryStore], faults: tuple[Fault, ...]) -> None:
    store = ScriptedStore(inner())
    store.fail("put_if_absent", *faults)
    if inner is Forgetful:
        with pytest.raises(ConfigError):
            probe_exclusive_creation(store, AT_ONCE)
        assert paths(store) == []
    else:
        probe_exclusive_creation(store, AT_ONCE)
        assert paths(store) == [PROBE]


def test_refusal_is_not_concluded_from_silence() -> None:
    # The second creator gets no answer; its body is not stored, which looks like a refusal.
    store = ScriptedStore(Forgetful())
    store.fail("put_if_absent", let_through, *[no_answer] * AT_ONCE.attempts)
    with pytest.raises(StoreUnavailableError):
        probe_exclusive_creation(store, AT_ONCE)


def test_creation_that_arrives_twice_is_the_probes_own() -> None:
    store = ScriptedStore()
    later: list[Call] = []

    def arrives_before_the_next(call: Call) -> None:
        later.pop()()
        call()

    store.fail("put_if_absent", delayed(later), arrives_before_the_next)
    probe_exclusive_creation(store, AT_ONCE)
    assert paths(store) == [PROBE]


def test_store_that_does_not_answer_is_no_store_without_put_if_absent() -> None:
    with pytest.raises(StoreUnavailableError):
        probe_exclusive_creation(Unreachable(), AT_ONCE)


def test_refusal_stands_though_the_probe_cannot_be_removed() -> None:
    store = ScriptedStore(Forgetful())
    store.fail("delete", no_answer)
    with pytest.raises(ConfigError):
        probe_exclusive_creation(store, AT_ONCE)
