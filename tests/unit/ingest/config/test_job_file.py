"""A job file of any content is checked in bounded time and memory, before anything starts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from ingest.config.load import load_config
from timeline.errors import ConfigError

SMALL = "name: small\nsource: {type: files, path: logs, format: json}\ntargets: [{type: delta, path: lake/small}]\n"
TEXT = SMALL.replace("json", "text, pattern: '%s'")


class Counting(Mapping[str, str]):
    """An environment that counts its lookups: one for each value that is built."""

    asked = 0

    def __getitem__(self, name: str) -> str:
        self.asked += 1
        return "x"

    def __contains__(self, name: object) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def refused(folder: Path, text: str, environment: Mapping[str, str] | None = None) -> str:
    file = folder / "job.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(file, environment if environment is not None else {})
    return str(caught.value).replace(str(file), "FILE")


def test_aliases_of_aliases_are_expanded_up_to_a_bound(tmp_path: Path) -> None:
    values = ", ".join(['"${N}"'] * 10)
    levels = ["storage:", f"  l0: &l0 [{values}]"]
    levels += [f"  l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]" for n in range(1, 6)]
    environment = Counting()
    said = refused(tmp_path, SMALL + "\n".join(levels), environment)
    assert said.startswith("FILE: line 5: too large for a job file: 512 KiB are allowed")
    assert environment.asked < 100_000


def test_a_long_text_behind_many_aliases_counts_with_its_length(tmp_path: Path) -> None:
    environment = Counting()
    said = refused(
        tmp_path, f"{SMALL}storage:\n  a: &a '${{N}}{'x' * 100_000}'\n  b: [{'*a, ' * 1000}1]\n", environment
    )
    assert said.startswith("FILE: line 5: too large for a job file")
    assert environment.asked < 50


@pytest.mark.parametrize("loop", ["&a [*a, *a]", "&a {b: [1, *a]}", "&a {b: &b [*a, *b]}"])
def test_an_alias_of_what_contains_it_is_named_once_for_each_place(loop: str, tmp_path: Path) -> None:
    lines = refused(tmp_path, f"{SMALL}storage: {loop}\n").splitlines()[1:]
    assert 1 <= len(lines) <= 3
    assert all("line 4: storage" in line for line in lines)
    assert any("an alias stands for what contains it; write out what is meant" in line for line in lines)


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ("{a: ", "}"), ("- ", "")])
def test_values_nested_deep_are_refused_with_the_line_and_no_recursion(
    opening: str, closing: str, tmp_path: Path
) -> None:
    said = refused(tmp_path, f"{SMALL}storage: {opening * 20_000}{closing * 20_000}\n")
    assert said.startswith("FILE: line 4: not valid YAML: ")
    if closing:
        assert "nested more than 50 deep" in said


def test_a_file_that_is_no_job_file_by_its_size_is_not_parsed(tmp_path: Path) -> None:
    assert refused(tmp_path, SMALL + "#" * (600 << 10)).startswith("FILE: too large for a job file: 512 KiB")
    (tmp_path / "job.yaml").write_bytes(b"\xff" * (600 << 10))
    with pytest.raises(ConfigError, match="too large for a job file"):
        load_config(tmp_path / "job.yaml", {})


def test_of_very_many_problems_the_first_are_told(tmp_path: Path) -> None:
    said = refused(tmp_path, SMALL + "".join(f"key{number}: 1\n" for number in range(5000)))
    assert len(said.splitlines()) == 102 and "and more; these are the first 100" in said.splitlines()[-1]


@pytest.mark.parametrize(
    "pattern",
    [
        "(?P<a>x{1,2000})",
        "(?P<a>(?:x{1,999}){1,999})",
        "(?P<a>(?:(?:x{40}){40}){40})",
        "(?P<a>x)(?=y)",
        "(?P<a>x)(?P=a)",
    ],
)
def test_a_pattern_that_re2_does_not_take_is_refused_before_anything_starts(pattern: str, tmp_path: Path) -> None:
    said = refused(tmp_path, TEXT % pattern)
    assert "1 problem, nothing was started" in said
    assert "line 2: source.pattern: " in said and "RE2 is allowed: no look-around" in said


def test_a_pattern_nested_too_deep_to_compile_is_a_problem_of_its_line(tmp_path: Path) -> None:
    said = refused(tmp_path, TEXT % f"(?P<a>{'(?:' * 5000}x{')' * 5000})")
    assert "line 2: source.pattern: " in said and "nested too deep" in said
