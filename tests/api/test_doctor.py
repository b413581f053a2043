"""The doctor really tries what is installed."""

from __future__ import annotations

import sys
import types

from polypscope.api.doctor import doctor


def test_a_whole_installation_is_healthy(capsys) -> None:
    diagnosis = doctor()
    assert diagnosis.exit_code == 0
    text = capsys.readouterr().out
    assert "not a medical device" in text
    assert {"video", "providers", "compiled loops"} <= {part for part, _, _ in diagnosis.rows}


def test_a_broken_library_is_found(monkeypatch) -> None:
    broken = types.ModuleType("av")  # imports, but cannot open anything
    broken.__spec__ = types.SimpleNamespace(name="av")  # type: ignore[assignment]
    monkeypatch.setitem(sys.modules, "av", broken)
    diagnosis = doctor()
    assert diagnosis.exit_code == 1
    assert diagnosis.broken == ("video",)
