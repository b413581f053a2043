"""Scores for a model card: the exported file, through the runtime, on folders of pictures and masks."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from polypscope.evaluation.segmentation.overlap import dice
from polypscope.runtime.segmenter import Segmenter
from polypscope.training.config import Source
from polypscope.training.sources import list_pictures

PROTOCOL = "mean of per-image Dice over pictures with a polyp, threshold 0.5, original size"
FINDINGS = "one centroid per component at the card's threshold; a hit lies in a polyp, further hits of it do not count"
ALARMS = "share of pictures without a polyp in which anything reaches the card's threshold"
# How each look at a picture is named in the cards, and what it does.
LOOKS = {
    "": "",
    ", careful": "; averaged with its mirror image, small findings looked at again, doubtful second outlines left out, "
    "as `predict` does",
}


def score_sets(model: Path, wanted: list[dict[str, Any]], base: Path) -> list[dict[str, Any]]:
    """Rows for `ModelCard.scores`: Dice, F1 of the findings and, where there are empty pictures, the alarm rate.

    `wanted` are tables with the fields of a `Source`, whose `root` may hold `*`, and `used_to_choose`.
    """
    segmenter = Segmenter.load(model)
    threshold = segmenter.card.threshold
    base = base.resolve()  # what a pattern matches is joined to nothing further
    rows = []
    for entry in wanted:
        source = source_of(entry)
        roots = sorted(base.glob(str(source.root))) if "*" in str(source.root) else [source.root]
        parts = [source.model_copy(update={"root": root}).under(base) for root in roots]
        tallies = {look: _Tally() for look in LOOKS}
        for picture in (picture for part in parts for picture in list_pictures(part)):
            truth, rgb = picture.mask() > 0, picture.rgb()
            for look, tally in tallies.items():
                probability = segmenter.predict(rgb, careful=bool(look))
                tally.add(truth, probability.at_least(0.5).values, probability.at_least(threshold).values)
        about = {"data": source.label, "used_to_choose": bool(entry.get("used_to_choose", False))}
        for look, tally in tallies.items():
            for metric, value, protocol, count in tally.figures():
                told = {"metric": metric + look, "value": round(value, 4), "protocol": protocol + LOOKS[look]}
                rows.append({**about, **told, "images": count})
    return rows


@dataclass
class _Tally:
    """What one way of looking found in the pictures of one source."""

    dices: list[float] = field(default_factory=list)
    alarms: list[bool] = field(default_factory=list)
    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(3, np.int64))  # hits, false findings, missed

    def add(self, truth: NDArray[np.bool_], outlined: NDArray[np.bool_], found: NDArray[np.bool_]) -> None:
        if truth.any():
            self.dices.append(dice(truth, outlined))
            self.counts += findings(truth, found)
        else:
            self.alarms.append(bool(found.any()))

    def figures(self) -> list[tuple[str, float, str, int]]:
        """Metric, value, rule and number of pictures, where there are any."""
        told = []
        if self.dices:
            hits, false, missed = self.counts
            told.append(("mean Dice", float(np.mean(self.dices)), PROTOCOL, len(self.dices)))
            told.append(("F1", float(2 * hits / max(1, 2 * hits + false + missed)), FINDINGS, len(self.dices)))
        if self.alarms:
            told.append(("alarms", float(np.mean(self.alarms)), ALARMS, len(self.alarms)))
        return told


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
