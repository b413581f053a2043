"""Scores of a card: the same figures as by hand, for one look and for a careful one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="training needs the train extra")

from polypscope.evaluation.segmentation.overlap import dice
from polypscope.io.images import write_image
from polypscope.runtime.cards import find_card
from polypscope.runtime.segmenter import DEFAULT_SEGMENTER, Segmenter
from polypscope.simulator import sequence
from polypscope.training.scores import findings, score_sets


def test_one_look_and_a_careful_one_are_scored_apart(tmp_path: Path) -> None:
    made = sequence(78, 0, frames=100, style="clinical", width=384, height=288, negatives=0.0)
    pictures = [(item.frame.rgb, item.truth.instances > 0) for item in made.only([0, 40, 80])]
    pictures = [(rgb, truth) for rgb, truth in pictures if truth.any()]
    assert pictures
    for number, (rgb, truth) in enumerate([*pictures, (np.zeros((64, 64, 3), np.uint8), np.zeros((64, 64), bool))]):
        write_image(tmp_path / "images" / f"{number}.png", rgb)
        write_image(tmp_path / "masks" / f"{number}.png", truth.astype(np.uint8) * 255)
    rows = score_sets(
        find_card(DEFAULT_SEGMENTER).weights_path, [{"root": ".", "name": "drawn", "used_to_choose": True}], tmp_path
    )
    found = {row["metric"]: row for row in rows}
    assert all(row["data"] == "drawn" and row["used_to_choose"] for row in rows)
    segmenter = Segmenter.load()
    for look in ("", ", careful"):
        maps = [segmenter.predict(rgb, careful=bool(look)).values for rgb, _ in pictures]
        overlap = [dice(truth, seen >= 0.5) for (_, truth), seen in zip(pictures, maps, strict=True)]
        assert found[f"mean Dice{look}"]["value"] == pytest.approx(np.mean(overlap), abs=1e-4)
        assert found[f"mean Dice{look}"]["images"] == len(pictures)
        counts = [
            findings(truth, seen >= segmenter.card.threshold) for (_, truth), seen in zip(pictures, maps, strict=True)
        ]
        hits, false, missed = np.sum(counts, 0)
        assert found[f"F1{look}"]["value"] == pytest.approx(2 * hits / (2 * hits + false + missed), abs=1e-4)
        assert (found[f"alarms{look}"]["value"], found[f"alarms{look}"]["images"]) == (0, 1)
    assert found["mean Dice"]["value"] != found["mean Dice, careful"]["value"]
    assert "as `predict` does" in found["F1, careful"]["protocol"]
