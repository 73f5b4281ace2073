"""A Delta log entry is JSON that every reader accepts, whatever strings it contains."""

from __future__ import annotations

import json

import pytest

from sinks.delta.entry import INSTANT, DeltaLogEntry, append_text, read_entry, withdrawal_text
from timeline.epoch import WrittenFile


@pytest.mark.parametrize(
    "text", ["\u00fc", "\U00020bb7", "\U0010ffff", "\u2028", 'a"\\\n', "\ud842", "\udfb7\ud842 \ud842a"]
)
def test_any_text_is_read_back_and_only_half_a_surrogate_pair_is_an_escape(text: str) -> None:
    file = WrittenFile("a.parquet", 1, 1, {"p": text}, {"minValues": {text: text}})
    body = append_text(text, DeltaLogEntry(3, [file], {INSTANT: text}, 0), [text])
    assert (r"\ud842" in body.decode()) == ("\ud842" in text)
    assert body.count(b"\n") == 3
    *_, added = (json.loads(line)["add"] for line in body.splitlines() if b'"add"' in line)
    assert added["partitionValues"] == {"p": text}
    assert json.loads(added["stats"]) == {"minValues": {text: text}}
    seen = read_entry("here", body, text)
    assert (seen.marker, seen.instant) == (3, text)


def test_an_entry_that_takes_files_out_again_has_their_texts_as_the_one_that_added_them() -> None:
    file = WrittenFile("a.parquet", 1, 1, {"p": "\U00020bb7"})
    body = withdrawal_text(DeltaLogEntry(3, [file], {}, 0))
    assert "\U00020bb7".encode() in body
    (removed,) = (json.loads(line)["remove"] for line in body.splitlines() if b'"remove"' in line)
    assert removed["partitionValues"] == {"p": "\U00020bb7"}
