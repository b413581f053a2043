"""Training of ASU: forests for edges, then networks for what the edges vote for, then the threshold.

Whatever learns from another's answers must not learn from answers about pictures that the other knows by heart. So the
pictures are cut into thirds: candidates of a third come from forests that learned from the others, networks learn from
such candidates, and the threshold is judged on a third that neither its forests nor its networks had seen. Only the two
numbers by which boxes grow are learned from all at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import cv2
import numpy as np
from numpy.typing import NDArray

from polypscope.methods.asu import CHANNELS, Asu, Ballot, Proposals, propose, score, strongest, vote
from polypscope.methods.edge_classes import EdgeForests, Scene, fit_edges, look_at
from polypscope.methods.edge_votes import Candidate
from polypscope.methods.patch_cnn import PatchCnn, fit_cnn
from polypscope.records.errors import InputError

__all__ = ["train_asu"]

FOLDS = 3


def train_asu(
    pictures: Iterable[tuple[NDArray[np.uint8], NDArray[np.bool_]]],
    *,
    epochs: int = 6,
    say: Callable[[str], None] = lambda text: None,
) -> Asu:
    """Train on frames, uint8 RGB (H, W, 3), with their masks, bool (H, W); frames without polyp are welcome."""
    scenes: list[Scene] = []
    masks: list[NDArray[np.bool_]] = []
    for rgb, mask in pictures:
        scene = look_at(rgb)
        scenes.append(scene)
        size = scene.shape[::-1]
        masks.append(cv2.resize(mask.astype(np.uint8), size, interpolation=cv2.INTER_NEAREST) > 0)
    polyps = np.array([mask.any() for mask in masks], np.bool_)
    if polyps.sum() < FOLDS:
        raise InputError(f"training: expected at least {FOLDS} pictures with a polyp, found {polyps.sum()}; add more.")
    fold = np.zeros(len(scenes), np.int64)
    for kind in (polyps, ~polyps):  # whole stretches, for neighbours resemble one another
        fold[kind] = np.arange(kind.sum()) * FOLDS // max(int(kind.sum()), 1)
    say(f"{len(scenes)} pictures, {int(polyps.sum())} with a polyp")
    forests = [_fit_forests(scenes, masks, fold != k) for k in range(FOLDS)]
    ballots = [vote(scene, forests[k]) for scene, k in zip(scenes, fold, strict=True)]
    growth = _growth([ballot.candidates for ballot in ballots], masks)
    seen = [propose(scene, ballot, growth) for scene, ballot in zip(scenes, ballots, strict=True)]
    labels = [_labels(one, mask) for one, mask in zip(seen, masks, strict=True)]
    hit = float(np.mean([bool((one != 0).any()) for one, p in zip(labels, polyps, strict=True) if p]))
    say(f"edges vote for a place inside {100 * hit:.0f} % of the polyps")
    plain = _plain_mucosa(scenes, ballots, masks, growth)
    threshold, f1 = _best_threshold(seen, labels, plain, fold, int(polyps.sum()), epochs)
    say(f"a candidate is reported from a score of {threshold:.2f}: an F1 of {100 * f1:.1f} % on pictures left out")
    everything = np.ones(len(scenes), np.bool_)
    networks = _fit_networks(seen, labels, plain, everything, epochs)
    return Asu(_fit_forests(scenes, masks, everything), growth, networks, threshold)


def _fit_forests(scenes: list[Scene], masks: list[NDArray[np.bool_]], use: NDArray[np.bool_]) -> EdgeForests:
    chosen = np.flatnonzero(use)
    return fit_edges([scenes[i] for i in chosen], [masks[i] for i in chosen])


def _growth(contours: list[list[Candidate]], masks: list[NDArray[np.bool_]]) -> tuple[float, float]:
    """How large a polyp is by its contour: a line through logarithms of radii, of candidates that lie in a polyp."""
    pairs = []
    for candidates, mask in zip(contours, masks, strict=True):
        for one in candidates:
            box = _polyp_at(one, mask)
            if box is not None:
                pairs.append((one.radius(), np.sqrt((box[2] - box[0]) * (box[3] - box[1])) / 2))
    if len(pairs) < FOLDS:
        raise InputError(f"training: expected votes for places inside polyps, found {len(pairs)}; add pictures.")
    x, y = np.log(np.maximum(pairs, 1.0)).T
    slope = float(np.cov(x, y)[0, 1] / max(float(x.var(ddof=1)), 1e-3))
    return float(y.mean() - slope * x.mean()), slope


def _polyp_at(one: Candidate, mask: NDArray[np.bool_]) -> tuple[int, ...] | None:
    """The box of the polyp in which a candidate lies: left, top, right, bottom."""
    row, column = min(max(int(one.y), 0), mask.shape[0] - 1), min(max(int(one.x), 0), mask.shape[1] - 1)
    if not mask[row, column]:
        return None
    _, labels, stats, _ = cv2.connectedComponentsWithStats(mask.astype(np.uint8), connectivity=8)
    left, top, width, height, _ = (int(v) for v in stats[labels[row, column]])
    return left, top, left + width, top + height


def _labels(seen: Proposals, mask: NDArray[np.bool_]) -> NDArray[np.int64]:
    """1 for a polyp, 0 for something else, -1 for a place in a polyp whose box does not fit (an IoU below 0.2)."""
    out = np.zeros(len(seen.candidates), np.int64)
    for i, (one, box) in enumerate(zip(seen.candidates, seen.boxes, strict=True)):
        polyp = _polyp_at(one, mask)
        if polyp is not None:
            wide = max(0.0, min(box[2], polyp[2]) - max(box[0], polyp[0]))
            shared = wide * max(0.0, min(box[3], polyp[3]) - max(box[1], polyp[1]))
            areas = [(b[2] - b[0]) * (b[3] - b[1]) for b in (box, polyp)]
            out[i] = 1 if shared >= 0.2 * (sum(areas) - shared) else -1
    return out


def _plain_mucosa(
    scenes: list[Scene], ballots: list[Ballot], masks: list[NDArray[np.bool_]], growth: tuple[float, float]
) -> list[NDArray[np.uint8]]:
    """One patch of each picture, uint8 (0 or 1, ROOM, ROOM, 6), around a random place outside the polyps: networks that
    saw candidates alone would not know what to say of a place that nothing surrounds."""
    rng = np.random.default_rng(0)
    radii = [one.radius() for ballot in ballots for one in ballot.candidates]
    out = []
    for scene, ballot, mask in zip(scenes, ballots, masks, strict=True):
        radius = float(rng.choice(radii))
        x, y = rng.uniform(0.15, 0.85, 2) * scene.shape[::-1]
        one = Candidate(x, y, 0.0, (x - radius, y - radius, x + radius, y + radius))
        places = [one] if _polyp_at(one, mask) is None else []
        out.append(propose(scene, replace(ballot, candidates=places), growth).patches)
    return out


def _fit_networks(
    seen: list[Proposals],
    labels: list[NDArray[np.int64]],
    plain: list[NDArray[np.uint8]],
    use: NDArray[np.bool_],
    epochs: int,
) -> dict[str, PatchCnn]:
    chosen = np.flatnonzero(use)
    known = np.concatenate([labels[i] for i in chosen])
    others = np.concatenate([plain[i] for i in chosen])
    patches = np.concatenate([np.concatenate([seen[i].patches for i in chosen])[known >= 0], others])
    positive = np.concatenate([known[known >= 0] == 1, np.zeros(len(others), np.bool_)])
    if not positive.any() or positive.all():
        raise InputError("training: expected candidates that are polyps and others, found one kind; add pictures.")
    return {
        name: fit_cnn(np.ascontiguousarray(patches[..., part]), positive, epochs=epochs, seed=k)
        for k, (name, part) in enumerate(CHANNELS.items())
    }


def _best_threshold(
    seen: list[Proposals],
    labels: list[NDArray[np.int64]],
    plain: list[NDArray[np.uint8]],
    fold: NDArray[np.int64],
    polyps: int,
    epochs: int,
) -> tuple[float, float]:
    """The threshold with the best F1, by the challenge's counting, over thirds left out in turn; and that F1."""
    thresholds = np.linspace(0.1, 0.95, 35)
    right, wrong = np.zeros(len(thresholds)), np.zeros(len(thresholds))
    for k in range(FOLDS):
        networks = _fit_networks(seen, labels, plain, fold != k, epochs)
        for i in np.flatnonzero(fold == k):
            scores = score(networks, seen[i].patches)
            for t, threshold in enumerate(thresholds):
                hits = labels[i][strongest(seen[i], scores, float(threshold))] != 0  # the place lies in the mask
                right[t] += bool(hits.any())
                wrong[t] += int((~hits).sum())
    f1 = 2 * right / np.maximum(right + wrong + polyps, 1)
    best = int(np.argmax(f1))
    return float(thresholds[best]), float(f1[best])
