"""Notebooks run unchanged and reproduce their stored outputs.

A cell whose output differs from run to run (times, process ids) has the tag ``varies``: only the kinds of its outputs
are compared. All other outputs are compared as text, pictures only by their existence. To store outputs::

    LOGS=… python -m tests.notebooks.test_notebooks notebooks/04_read_a_hudi_timeline.ipynb
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
HUDI = ROOT / "notebooks" / "04_read_a_hudi_timeline.ipynb"
LOGS_NOTEBOOK = ROOT / "notebooks" / "01_ingest_and_look.ipynb"
"""Its outputs come from the real access log."""

VARIES = "varies"
TIMEOUT_S = 240

# Paths of a machine and memory addresses must not appear on a page.
_PRIVATE = re.compile(rf"{re.escape(str(ROOT))}|/(home|root|tmp|Users|var)/|site-packages|0x[0-9a-f]{{8,}}")

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


def load(path: Path) -> Any:
    return nbformat.reads(path.read_text(), as_version=4)  # type: ignore[no-untyped-call]


def executed(path: Path, folder: Path) -> Any:
    """The notebook after this Python has run all its cells in an empty folder.

    An error in a cell is raised with the cell's text.
    """
    notebook = load(path)
    # The kernel named python3 is this Python's own, whatever else is registered under that name.
    client = NotebookClient(
        notebook, timeout=TIMEOUT_S, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    )
    python = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    # Cells call `tideline` as in an activated environment.
    programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    places = {"PATH": programs, "PYTHONPATH": python}
    work = client.async_execute(env=os.environ | places | {"TZ": "UTC", "COLUMNS": "120", "TERM": "dumb"})
    # In a separate thread: `asyncio.run` here would replace the event loop of this thread's other tests.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, work).result()
    return notebook


def shown(cell: Any) -> list[tuple[str, str]]:
    """Kind and text of each output of a cell; the text of a picture is empty."""
    found: list[tuple[str, str]] = []
    for output in cell.outputs:
        if output.output_type == "stream":
            # The pipe splits a program's output at random; join the pieces.
            before = found.pop()[1] if found and found[-1][0] == output.name else ""
            found.append((output.name, before + output.text))
        else:
            for kind, content in sorted(output.get("data", {}).items()):
                found.append((kind, "" if kind.startswith("image/") or VARIES in tags(cell) else content))
    return [(kind, "") for kind, _ in found] if VARIES in tags(cell) else found


def tags(cell: Any) -> list[str]:
    return list(cell.metadata.get("tags", []))


def code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_shows_what_is_stored_in_it(
    path: Path, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    if path == LOGS_NOTEBOOK:
        monkeypatch.setenv("LOGS", str(request.getfixturevalue("logs")))
    stored = [shown(cell) for cell in code_cells(load(path))]
    fresh = [shown(cell) for cell in code_cells(executed(path, tmp_path))]
    for number, (before, now) in enumerate(zip(stored, fresh, strict=True), 1):
        assert now == before, f"code cell {number} of {path.name} shows something else; store its outputs again"
    assert sum(map(len, stored)) >= len(stored) / 2, "a reader on a web page sees outputs"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_opens_with_what_its_reader_will_know(path: Path) -> None:
    first = load(path).cells[0]
    assert first.cell_type == "markdown"
    assert re.match(r"# .+\n\n\*\*At the end you know\*\*", first.source)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_stored_notebook_names_no_machine_and_no_moment_of_its_run(path: Path) -> None:
    notebook = load(path)
    for cell in notebook.cells:
        assert not _PRIVATE.search(cell.source), cell.source
        assert set(cell.metadata) <= {"tags"}, cell.metadata
        for _, text in shown(cell) if cell.cell_type == "code" else []:
            assert not _PRIVATE.search(text), text
    assert set(notebook.metadata) <= {"kernelspec", "language_info"}
    assert dict(notebook.metadata.language_info) == {"name": "python"}


def test_there_are_notebooks() -> None:
    assert HUDI in NOTEBOOKS


def test_the_hudi_notebook_tells_what_the_samples_hold() -> None:
    """Outputs checked by eye once: pending, archived, rolled back, planned, unreadable."""
    cells = code_cells(load(HUDI))
    told = "\n".join(text for cell in cells for kind, text in shown(cell) if not kind.startswith("image/"))
    for words in (
        "10 active, 26 with the archived ones",
        "inflight",
        "instant 2026",
        "compaction requested",
        "2 log files into file group",
        "frobnicate",
        "does not exist",
        "10 instants are told all the same",
        "neither JSON nor an Avro object container",
    ):
        assert words in told
    outputs = (output for cell in cells for output in cell.outputs)
    (picture,) = (output.data["image/png"] for output in outputs if "image/png" in output.get("data", {}))
    assert len(picture) > 5_000


def store_outputs(path: Path) -> None:
    """Run a notebook and store its outputs, without traces of the machine or the time."""
    with tempfile.TemporaryDirectory() as folder:
        notebook = executed(path, Path(folder))
    for number, cell in enumerate(code_cells(notebook), 1):
        cell.execution_count = number
        for output in cell.outputs:
            if "execution_count" in output:
                output.execution_count = number
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
    notebook.metadata.language_info = {"name": "python"}
    path.write_text(nbformat.writes(notebook) + "\n")  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    for name in sys.argv[1:]:
        store_outputs(Path(name))
