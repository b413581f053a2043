"""The demonstration, made tiny: rendered, analysed with the shipped weights, truth in table and report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import polypscope.api.demo as module
from polypscope.records.errors import OutputError
from polypscope.runtime.cards import list_cards


def test_demo_ends_with_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    if not list_cards():
        pytest.skip("no weights ship with this copy")
    monkeypatch.setattr(module, "_FRAMES", 12)
    monkeypatch.setattr(module, "_SIDE", 96)
    result = module.demo(tmp_path / "demo")
    assert [row["true"] for row in result.rows] == sorted(row["true"] for row in result.rows)
    text = result.report.read_text(encoding="utf-8")
    assert "Truth beside estimate" in text
    assert "simulated" in text
    log = json.loads((tmp_path / "demo" / "run.json").read_text())
    assert log["status"] == "done"
    assert (tmp_path / "demo" / "overlay.mp4").is_file()
    out = capsys.readouterr().out
    assert "Open the report" in out
    assert "not a medical device" in out
    with pytest.raises(OutputError, match="--overwrite"):
        module.demo(tmp_path / "demo")
