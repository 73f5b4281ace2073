"""An unforeseen error names the package that it comes from."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from ingest.cli.plugins import plugin_of
from ingest.config.registry import SINK_GROUP


@pytest.mark.parametrize(("call", "package"), [("fail()", "failing_sink"), ("[][0]", None)])
def test_an_error_in_the_code_of_a_sinks_package_names_the_package(
    call: str, package: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "failing_sink.py").write_text("def fail():\n    return {}['nothing']\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "failing_sink", raising=False)
    entries = EntryPoints([EntryPoint("mine", "failing_sink:Sink", SINK_GROUP)])
    monkeypatch.setattr("ingest.cli.plugins.installed_sinks", lambda: entries)
    from failing_sink import fail  # type: ignore[import-not-found]

    with pytest.raises(LookupError) as caught:
        eval(call, {"fail": fail})
    assert plugin_of(caught.value) == package
