"""The demonstration, made tiny: rendered, analysed with the shipped weights, truth in table and report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import polypscope.api.demo as module
from polypscope.records import SizeEstimate
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


def test_a_polyp_that_no_frame_shows_whole_is_a_lower_bound(tmp_path: Path, capsys) -> None:
    common = {"paris": "0-Is", "true_mm": 12.0, "found_as": [1], "latency_frames": 3, "estimate_mm": 7.24}
    sizes = [SizeEstimate(7.24, 5.0, (6.1, 8.9), 0.9, "caliper", flags) for flags in ((), ("truncated",))]
    rows = tuple({"true": n, "interval_mm": module._interval(size), **common} for n, size in enumerate(sizes))
    assert [row["interval_mm"] for row in rows] == [[6.1, 8.9], [6.1, None]]
    module._show(module.Demo(tmp_path, rows, 0, 1.0))
    whole, part = (line for line in capsys.readouterr().out.splitlines() if "0-Is" in line)
    assert "6.1–8.9" in whole
    assert "at least 7.2" in part
    assert "6.1 or more" in part
    assert "8.9" not in part
