"""A profile's picture: boxes as wide as their samples."""

from __future__ import annotations

import re

from bench.flame import draw, read

PROFILE = """\
process 7:"python -m x";run (ingest/loop.py:10);decode (ingest/task.py:3) 60
process 7:"python -m x";run (ingest/loop.py:12);decode (ingest/task.py:4) 20
process 8:"python -m y";run (ingest/loop.py:12);<lambda> (<frozen runpy>:1) 19
idle (util.py:1) 1
"""


def test_calls_from_one_place_are_one_box_whatever_their_line_and_process() -> None:
    root = read(PROFILE)
    assert root.samples == 100
    (run, _) = sorted(root.calls.values(), key=lambda box: -box.samples)
    assert (run.name, run.samples) == ("run (ingest/loop.py)", 99)
    assert {box.name: box.samples for box in run.calls.values()} == {
        "decode (ingest/task.py)": 80,
        "<lambda> (<frozen runpy>)": 19,
    }


def test_imports_are_one_box_however_deep_they_go() -> None:
    stack = "run (a.py:1);_find_and_load (<frozen importlib._bootstrap>:1176);<module> (b.py:1)"
    (run,) = read(f"{stack} 2\n{stack};_find_and_load (<frozen importlib._bootstrap>:1176) 3\n").calls.values()
    assert {name: (box.samples, box.calls) for name, box in run.calls.items()} == {"imports": (5, {})}


def test_a_box_is_as_wide_as_its_samples_and_nothing_in_the_file_runs() -> None:
    svg = draw(read(PROFILE), "an <epoch>")
    widths = dict(re.findall(r'width="([\d.]+)"[^>]*><title>([^<]*)</title>', svg))
    assert {name: float(width) for width, name in widths.items()} == {
        "all: 100.0%": 983.5,
        "run (ingest/loop.py): 99.0%": 973.7,
        "decode (ingest/task.py): 80.0%": 786.7,
        "&lt;lambda&gt; (&lt;frozen runpy&gt;): 19.0%": 186.5,
        "idle (util.py): 1.0%": 9.3,
    }
    assert "an &lt;epoch&gt;: 100 samples" in svg
    assert "<script" not in svg
