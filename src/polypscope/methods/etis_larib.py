"""ETIS-LARIB: regions by shape, then texture (Silva et al., IJCARS 9, 2014).

As a physician looks: first quickly for anything round of a plausible size, then closely at its surface. Circles and
ellipses from a Hough transform with a size prior are regions of interest; Haralick's features of their co-occurrence
matrices go to boosted stumps, which throw out the regions without polyp.

Where this differs from the authors': the size prior is learned from the training polyps, ellipses are sought at four
angles besides circles, and the threshold of the classifier is the one with the best F1 on training pictures that the
classifier did not see. There is no energy map.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from polypscope.methods.boosting import Stumps, fit_stumps
from polypscope.methods.haralick import LENGTH, texture
from polypscope.methods.hough import RADII_PX, Ellipse, SizePrior, find_edges, find_ellipses
from polypscope.methods.method import Look, Method, check_frame
from polypscope.methods.tissue import find_highlights, find_view, grow, paint_over, shrink, standard_size
from polypscope.methods.trained import read_arrays, write_arrays
from polypscope.records import Box, Detection
from polypscope.records.errors import DamagedInput, InputError

__all__ = ["EtisLarib", "train_etis_larib"]

SHAPE_PX = 128  # side of a square with as many pixels as the picture in which shapes are sought
FINE = 2  # texture is looked at in a picture so many times finer
FOLDS = 3
_ANY_SIZE = SizePrior(float(np.log(24.0)), 0.6)


@dataclass(frozen=True, eq=False)
class _Regions:
    """Regions of one picture in pixels of the fine picture of size `shape`, and the features of each."""

    ellipses: list[Ellipse]
    features: NDArray[np.float64]
    shape: tuple[int, int]


class EtisLarib(Method):
    """The trained method. `threshold`: probability from which a region is reported."""

    has_map = False

    def __init__(self, stumps: Stumps, prior: SizePrior, threshold: float) -> None:
        self.stumps, self.prior, self.threshold = stumps, prior, threshold

    def look(self, rgb: NDArray[np.uint8]) -> Look:
        check_frame(rgb)
        regions = _regions(rgb, self.prior)
        if not regions.ellipses:
            return Look(())
        probability = self.stumps.probability(regions.features)
        kept = _strongest(regions.ellipses, probability, self.threshold)
        return Look(tuple(_detection(regions, i, float(probability[i]), rgb.shape[:2]) for i in kept))

    def save(self, path: Path) -> Path:
        """Write the trained method as .npz."""
        return write_arrays(
            path,
            "etis-larib",
            {
                "feature": self.stumps.feature,
                "threshold": self.stumps.threshold,
                "below": self.stumps.below,
                "above": self.stumps.above,
                "prior": np.array([self.prior.mean, self.prior.deviation]),
                "report_from": np.array([self.threshold]),
            },
        )

    @classmethod
    def load(cls, path: Path) -> EtisLarib:
        """Read what `save` wrote."""
        stumps_of = dict.fromkeys(("feature", "threshold", "below", "above"), ("n",))
        a = read_arrays(path, "etis-larib", {**stumps_of, "prior": (2,), "report_from": (1,)})
        if not 0 <= a["feature"].min() <= a["feature"].max() < LENGTH:
            raise DamagedInput(f"{path}: expected features below {LENGTH}, found {a['feature'].max()}; train it again.")
        if not a["prior"][1] > 0:
            raise DamagedInput(f"{path}: expected a prior with a width above 0, found {a['prior'][1]}; train it again.")
        stumps = Stumps(a["feature"].astype(np.int32), a["threshold"], a["below"], a["above"])
        return cls(stumps, SizePrior(float(a["prior"][0]), float(a["prior"][1])), float(a["report_from"][0]))


def _regions(rgb: NDArray[np.uint8], prior: SizePrior) -> _Regions:
    """Regions of interest and their texture."""
    fine = standard_size(rgb, SHAPE_PX * FINE)
    view = find_view(fine)
    highlights = find_highlights(fine) & view
    fine = paint_over(fine, highlights)
    grey = cv2.cvtColor(fine, cv2.COLOR_RGB2GRAY)
    height, width = grey.shape
    size = (max(8, round(width / FINE)), max(8, round(height / FINE)))
    small = np.asarray(cv2.resize(grey, size, interpolation=cv2.INTER_AREA), dtype=np.uint8)
    # The edge of the view and of what was painted over are no edges of the mucosa.
    free = shrink(view, 4) & ~grow(highlights, 2)
    allowed = cv2.resize(free.astype(np.uint8), size, interpolation=cv2.INTER_NEAREST) > 0
    edges = find_edges(small, allowed)
    found = find_ellipses(edges, (size[1], size[0]), prior)
    ellipses = [one.scaled(width / size[0]) for one in found]
    features = [_texture_inside(grey, view, one) for one in ellipses]
    table = np.stack(features) if features else np.zeros((0, 0))
    return _Regions(ellipses, table, (height, width))


def _texture_inside(grey: NDArray[np.uint8], view: NDArray[np.bool_], one: Ellipse) -> NDArray[np.float64]:
    reach = one.reach()
    y0, y1 = max(0, int(one.y - reach)), min(grey.shape[0], int(one.y + reach) + 2)
    x0, x1 = max(0, int(one.x - reach)), min(grey.shape[1], int(one.x + reach) + 2)
    y, x = np.mgrid[y0:y1, x0:x1].astype(np.float64)
    inside = one.contains(x, y) & view[y0:y1, x0:x1]
    return texture(grey[y0:y1, x0:x1], inside)


def _strongest(ellipses: list[Ellipse], probability: NDArray[np.float64], threshold: float) -> list[int]:
    """Regions from `threshold` on, best first, without those whose centre lies in a better one."""
    kept: list[int] = []
    for i in np.argsort(-probability, kind="stable"):
        if probability[i] < threshold:
            break
        one = ellipses[i]
        if not any(bool(ellipses[k].contains(np.float64(one.x), np.float64(one.y))) for k in kept):
            kept.append(int(i))
    return kept


def _detection(regions: _Regions, i: int, score: float, shape: tuple[int, int]) -> Detection:
    scale_x, scale_y = shape[1] / regions.shape[1], shape[0] / regions.shape[0]
    one = regions.ellipses[i]
    x = float(np.clip((one.x + 0.5) * scale_x - 0.5, 0, shape[1] - 1))
    y = float(np.clip((one.y + 0.5) * scale_y - 0.5, 0, shape[0] - 1))
    # Half extents of a turned ellipse along x and y.
    long, short = one.reach(), one.radius / np.sqrt(one.aspect)
    half_x = float(np.hypot(long * np.cos(one.angle), short * np.sin(one.angle)) * scale_x)
    half_y = float(np.hypot(long * np.sin(one.angle), short * np.cos(one.angle)) * scale_y)
    return Detection((x, y), score=score, box=Box(x - half_x, y - half_y, 2 * half_x, 2 * half_y))


def train_etis_larib(
    pictures: Iterable[tuple[NDArray[np.uint8], NDArray[np.bool_]]],
    *,
    rounds: int = 200,
    say: Callable[[str], None] = lambda text: None,
) -> EtisLarib:
    """Train on frames, uint8 RGB (H, W, 3), with their masks, bool (H, W); frames without polyp are welcome.

    A region is an example of polyp when its centre lies in the mask and it overlaps it well (IoU of at least 0.3), of
    something else when its centre lies outside; what is between teaches nothing and is left out.
    """
    seen: list[_Regions] = []
    masks: list[NDArray[np.bool_]] = []
    radii: list[float] = []
    for rgb, mask in pictures:
        regions = _regions(rgb, _ANY_SIZE)
        small = cv2.resize(mask.astype(np.uint8), regions.shape[::-1], interpolation=cv2.INTER_NEAREST) > 0
        seen.append(regions)
        masks.append(small)
        if small.any():
            radii.append(float(np.sqrt(small.sum() / np.pi)) / FINE)
    if len(radii) < FOLDS:
        raise InputError(f"training: expected at least {FOLDS} pictures with a polyp, found {len(radii)}; add more.")
    logs = np.log(np.clip(radii, RADII_PX[0], RADII_PX[-1]))
    prior = SizePrior(float(logs.mean()), float(max(logs.std(), 0.1)))
    say(f"{len(seen)} pictures, {len(radii)} with a polyp of {np.exp(prior.mean):.0f} px radius in {SHAPE_PX}² pixels")
    labels = [[_label(one, mask) for one in r.ellipses] for r, mask in zip(seen, masks, strict=True)]
    fold = np.arange(len(seen)) * FOLDS // len(seen)  # whole stretches, for neighbours resemble one another
    threshold = _best_threshold(seen, masks, labels, fold, rounds)
    stumps = _fit(seen, labels, np.ones(len(seen), dtype=np.bool_), rounds)
    say(f"{rounds} stumps; a region is reported from a probability of {threshold:.2f}")
    return EtisLarib(stumps, prior, threshold)


def _label(one: Ellipse, mask: NDArray[np.bool_]) -> int:
    """1 for a polyp, 0 for something else, -1 for neither."""
    column, row = min(max(int(one.x), 0), mask.shape[1] - 1), min(max(int(one.y), 0), mask.shape[0] - 1)
    if not mask[row, column]:
        return 0
    y, x = np.mgrid[: mask.shape[0], : mask.shape[1]].astype(np.float32)
    inside = one.contains(x, y)
    return 1 if (inside & mask).sum() >= 0.3 * (inside | mask).sum() else -1


def _fit(seen: list[_Regions], labels: list[list[int]], use: NDArray[np.bool_], rounds: int) -> Stumps:
    rows = [r.features for r, u in zip(seen, use, strict=True) if u and r.ellipses]
    known = np.concatenate([labels[i] for i in np.flatnonzero(use) if labels[i]])
    values = np.concatenate(rows)
    return fit_stumps(values[known >= 0], known[known >= 0] == 1, rounds=rounds)


def _best_threshold(
    seen: list[_Regions],
    masks: list[NDArray[np.bool_]],
    labels: list[list[int]],
    fold: NDArray[np.int64],
    rounds: int,
) -> float:
    """The threshold with the best F1, by the challenge's counting, over folds that were left out in turn."""
    thresholds = np.linspace(0.3, 0.95, 27)
    right, wrong = np.zeros(len(thresholds)), np.zeros(len(thresholds))
    polyps = sum(bool(mask.any()) for mask in masks)
    for k in range(FOLDS):
        stumps = _fit(seen, labels, fold != k, rounds)
        for i in np.flatnonzero(fold == k):
            if not seen[i].ellipses:
                continue
            probability = stumps.probability(seen[i].features)
            for t, threshold in enumerate(thresholds):
                kept = _strongest(seen[i].ellipses, probability, float(threshold))
                hits = [labels[i][j] != 0 for j in kept]  # the centre lies in the mask
                right[t] += any(hits)
                wrong[t] += len(hits) - sum(hits)
    f1 = 2 * right / np.maximum(right + wrong + polyps, 1)
    return float(thresholds[int(np.argmax(f1))])
