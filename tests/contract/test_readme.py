"""The README tells the truth: its Python runs, and its commands exist."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from polypscope.cli import COMMANDS
from polypscope.io.video_writer import VideoWriter
from polypscope.records import Frame

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


def test_every_command_named_exists_and_every_command_is_named() -> None:
    words = {command.words for command in COMMANDS}
    first_words = {word.split()[0] for word in words}
    named = set(re.findall(r"polypscope ([a-z]+)", README))
    assert named - {"models"} <= first_words
    text = set(re.findall(r"[a-z]+", README))
    assert {w for word in words for w in word.split()[:1]} <= text


def test_the_lines_of_python_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    block = re.search(r"```python\n(.*?)```", README, re.DOTALL)
    assert block is not None
    monkeypatch.chdir(tmp_path)
    with VideoWriter(tmp_path / "colonoscopy.mp4") as writer:
        for i in range(3):
            writer.write(Frame(i, i / 25, np.full((80, 96, 3), 90 + i, np.uint8)))
    names: dict[str, object] = {}
    exec(compile(block.group(1), "README.md", "exec"), names)
    assert names["mask"].shape == (80, 96)  # type: ignore[attr-defined]
