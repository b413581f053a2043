"""An error is one sentence and exit code 1 or 2; the traceback appears only with --debug."""

from __future__ import annotations

import pytest

import polypscope.cli as cli
from polypscope.records.errors import DamagedInput, UsageError


def _raise(error: BaseException):
    raise error


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (DamagedInput("a.png: expected a PNG, found text; give an image."), 1, "Error: a.png: expected a PNG"),
        (UsageError("--jobs: expected 1, found 0; give one."), 2, "Error: --jobs"),
        (OSError(28, "No space left on device", "out.csv"), 1, "out.csv: no space left on device"),
        (ZeroDivisionError("oops"), 1, "unexpected ZeroDivisionError (oops)"),
        (KeyboardInterrupt(), 130, "Stopped."),
    ],
)
def test_sentence_and_code(error, code, text, monkeypatch, capsys) -> None:
    monkeypatch.setattr(cli, "build_app", lambda arguments: lambda *_, **__: _raise(error))
    assert cli.run(["doctor"]) == code
    captured = capsys.readouterr()
    assert text in captured.err
    assert "Traceback" not in captured.err


def test_debug_shows_the_traceback(monkeypatch) -> None:
    monkeypatch.setattr(cli, "build_app", lambda arguments: lambda *_, **__: _raise(DamagedInput("x")))
    with pytest.raises(DamagedInput):
        cli.run(["doctor", "--debug"])
