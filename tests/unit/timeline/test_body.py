"""JSON bodies: those that a reader accepts, and those that it refuses."""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from timeline.body import FORMAT_VERSION, BodyFormat
from timeline.errors import FormatError


class Colour(enum.Enum):
    RED = "red"


@dataclass(frozen=True)
class Leaf:
    size: int


@dataclass(frozen=True)
class Tree:
    name: str
    leaves: tuple[Leaf, ...] = ()
    by_name: Mapping[str, Leaf] = field(default_factory=dict)
    colour: Colour = Colour.RED


TREE = BodyFormat("tree", Tree)
OAK = Tree("oak", (Leaf(1), Leaf(2)), {"ü/😀": Leaf(3)})


def changed(**fields: object) -> bytes:
    return json.dumps({**json.loads(TREE.dump(OAK)), **fields}).encode()


def test_a_body_is_one_json_object_with_its_kind_and_version() -> None:
    assert json.loads(TREE.dump(OAK)) == {
        "format": 1,
        "kind": "tree",
        "name": "oak",
        "leaves": [{"size": 1}, {"size": 2}],
        "by_name": {"ü/😀": {"size": 3}},
        "colour": "red",
    }
    assert FORMAT_VERSION == 1


def test_what_was_stored_is_read_back() -> None:
    assert TREE.load("a/b", TREE.dump(OAK)) == OAK


def test_unknown_fields_of_this_version_are_ignored() -> None:
    assert TREE.load("a/b", changed(age=7, leaves=[{"size": 1, "colour": "green"}, {"size": 2}])) == OAK


def test_absent_fields_with_a_default_take_it() -> None:
    assert TREE.load("a/b", b'{"format":1,"kind":"tree","name":"oak"}') == Tree("oak")


def test_a_newer_format_is_refused_and_says_to_upgrade() -> None:
    with pytest.raises(FormatError, match=r"a/b: format 2, this version reads up to 1: upgrade"):
        TREE.load("a/b", changed(format=2))


@pytest.mark.parametrize("version", [None, True, 0, -1, "1", 1.0, []])
def test_what_is_no_version_is_damage(version: object) -> None:
    with pytest.raises(FormatError, match=r"a/b: damaged: format"):
        TREE.load("a/b", changed(format=version))


@pytest.mark.parametrize("kind", [None, "plan", "", 1])
def test_another_kind_of_body_is_refused(kind: object) -> None:
    with pytest.raises(FormatError, match=r"a/b: expected a tree, found"):
        TREE.load("a/b", changed(kind=kind))


@pytest.mark.parametrize("body", [b"", b"\x00" * 64, b"\xff\xfe", b"tree", TREE.dump(OAK)[:-1], b"[" * 100_000])
def test_damaged_bytes_are_refused(body: bytes) -> None:
    with pytest.raises(FormatError, match=r"a/b: not a tree"):
        TREE.load("a/b", body)


@pytest.mark.parametrize("body", [b"null", b"[]", b"7", b'"tree"', b"{}"])
def test_json_that_is_no_body_is_refused(body: bytes) -> None:
    with pytest.raises(FormatError, match=r"a/b: expected a tree"):
        TREE.load("a/b", body)


def test_a_damaged_field_is_named_with_what_it_holds() -> None:
    with pytest.raises(FormatError, match=r"a/b: tree\.leaves\.0\.size: .*integer.*found 'big'"):
        TREE.load("a/b", changed(leaves=[{"size": "big"}]))
    with pytest.raises(FormatError, match=r"a/b: tree\.name: Field required"):
        TREE.load("a/b", b'{"format":1,"kind":"tree"}')


@pytest.mark.parametrize("value", [Tree("\udc80"), Tree("oak", by_name={"caf\udce9.log": Leaf(1)})])
def test_a_text_that_is_no_unicode_is_refused_before_it_is_stored_in_another_spelling(value: Tree) -> None:
    with pytest.raises(FormatError, match=r"a tree cannot hold .*udc.*no Unicode"):
        TREE.dump(value)
