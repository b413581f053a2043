"""Scores for a model card: the exported file, through the runtime, on folders of pictures and masks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np

from polypscope.evaluation.segmentation.overlap import dice
from polypscope.runtime.segmenter import Segmenter
from polypscope.training.config import Source
from polypscope.training.sources import list_pictures

PROTOCOL = "mean of per-image Dice over pictures with a polyp, threshold 0.5, original size"
CAREFUL = f"{PROTOCOL}; averaged over mirror images, small findings looked at again, as `predict` does"
FINDINGS = "one centroid per component at the card's threshold; a hit lies in a polyp, further hits of it do not count"
ALARMS = "share of pictures without a polyp in which anything reaches the card's threshold"


def score_sets(model: Path, wanted: list[dict[str, Any]], base: Path) -> list[dict[str, Any]]:
    """Rows for `ModelCard.scores`: Dice, F1 of the findings and, where there are empty pictures, the alarm rate.

    `wanted` are tables with the fields of a `Source`, whose `root` may hold `*`, and `used_to_choose`.
    """
    segmenter = Segmenter.load(model)
    base = base.resolve()  # what a pattern matches is joined to nothing further
    rows = []
    for entry in wanted:
        source = source_of(entry)
        roots = sorted(base.glob(str(source.root))) if "*" in str(source.root) else [source.root]
        parts = [source.model_copy(update={"root": root}).under(base) for root in roots]
        dices: list[float] = []
        careful: list[float] = []
        alarms: list[float] = []
        hits = false = missed = 0
        for picture in (picture for part in parts for picture in list_pictures(part)):
            truth = picture.mask() > 0
            rgb = picture.rgb()
            probability = segmenter.predict(rgb)
            found = probability.at_least(segmenter.card.threshold).values
            if truth.any():
                dices.append(dice(truth, probability.at_least(0.5).values))
                careful.append(dice(truth, segmenter.predict(rgb, careful=True).at_least(0.5).values))
                counts = findings(truth, found)
                hits, false, missed = hits + counts[0], false + counts[1], missed + counts[2]
            else:
                alarms.append(float(found.any()))
        about = {"data": source.label, "used_to_choose": bool(entry.get("used_to_choose", False))}
        f1 = 2 * hits / max(1, 2 * hits + false + missed)
        for metric, value, protocol, count in (
            ("mean Dice", float(np.mean(dices)) if dices else float("nan"), PROTOCOL, len(dices)),
            ("mean Dice, careful", float(np.mean(careful)) if dices else float("nan"), CAREFUL, len(dices)),
            ("F1", f1, FINDINGS, len(dices)),
            ("alarms", float(np.mean(alarms)) if alarms else float("nan"), ALARMS, len(alarms)),
        ):
            if count:
                rows.append(
                    {**about, "metric": metric, "value": round(value, 4), "protocol": protocol, "images": count}
                )
    return rows


def source_of(entry: dict[str, Any]) -> Source:
    """The pictures that a `[[score_on]]` table names."""
    return Source.model_validate({key: value for key, value in entry.items() if key != "used_to_choose"})


def findings(truth: np.ndarray, found: np.ndarray) -> tuple[int, int, int]:
    """Hits, false findings and missed polyps of one picture, by the MICCAI 2015 rule for centroids.

    >>> truth = np.zeros((9, 9), bool); truth[1:4, 1:4] = True
    >>> found = truth.copy(); found[7, 7] = True
    >>> findings(truth, found)
    (1, 1, 0)
    """
    polyps, labels = cv2.connectedComponents(truth.astype(np.uint8))
    count, _, _, centres = cv2.connectedComponentsWithStats(found.astype(np.uint8))
    struck, false = set(), 0
    for x, y in centres[1:count]:
        label = int(labels[round(y), round(x)])
        if label:
            struck.add(label)
        else:
            false += 1
    return len(struck), false, polyps - 1 - len(struck)
