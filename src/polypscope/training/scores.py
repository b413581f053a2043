"""Scores for a model card: the exported file, through the runtime, on folders of pictures and masks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from polypscope.evaluation.segmentation.overlap import dice
from polypscope.runtime.segmenter import Segmenter
from polypscope.training.config import Source
from polypscope.training.data import list_pairs, read_mask, read_rgb, read_stems

PROTOCOL = "mean of per-image Dice over pictures with a polyp, threshold 0.5, original size"


def score_sets(model: Path, wanted: list[dict[str, Any]], base: Path) -> list[dict[str, Any]]:
    """Rows for `ModelCard.scores`; `wanted` are tables with `root`, `name`, and optionally `only`, `used_to_choose`."""
    segmenter = Segmenter.load(model)
    rows = []
    for entry in wanted:
        chosen = bool(entry.pop("used_to_choose", False)) if "used_to_choose" in entry else False
        source = Source.model_validate(entry)
        only = None if source.only is None else base / source.only
        roots = sorted(base.glob(str(source.root))) if "*" in str(source.root) else [base / source.root]
        dices: list[float] = []
        for root in roots:
            for image, mask in list_pairs(root, read_stems(source.exclude), read_stems(only)):
                truth = read_mask(mask) > 0
                if truth.any():
                    dices.append(dice(truth, segmenter.predict(read_rgb(image)).at_least(0.5).values))
        rows.append(
            {
                "data": source.name or source.root.name,
                "metric": "mean Dice",
                "value": round(float(np.mean(dices)), 4),
                "protocol": PROTOCOL,
                "images": len(dices),
                "used_to_choose": chosen,
            }
        )
    return rows
