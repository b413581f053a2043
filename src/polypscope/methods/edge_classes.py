"""Which edges bound a polyp, and on which side it lies: two forests, one on top of the other.

The first sees the patch around an edge, once with the normal to each side, and gives the probability of five classes:
polyp (on the side of the normal), vessel, lumen, specular, other. Spread over the picture, these are maps; the second
sees the maps around the edge, that is, what the edges nearby are taken for, and decides.

Masks only tell polyps. The other classes are labelled by what the picture shows (`other_classes`), which is a guess: a
wrong one does no harm as long as it is not a polyp, for only the second forest's word on polyps is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from polypscope.methods.edge_patches import context, describe, turned
from polypscope.methods.forest import Forest, fit_forest
from polypscope.methods.hough import find_edges
from polypscope.methods.tissue import find_highlights, find_view, grow, paint_over, shrink, standard_size
from polypscope.methods.valleys import without_vessels
from polypscope.records.errors import InputError

__all__ = ["CLASSES", "EdgeForests", "Scene", "fit_edges", "label_edges", "look_at", "other_classes"]

CLASSES = ("polyp", "vessel", "lumen", "specular", "other")
POLYP, VESSEL, LUMEN, SPECULAR, OTHER = range(5)
WORK_PX = 160  # side of a square with as many pixels as the picture in which edges are sought
SPREAD_PX = 4.0  # how far an edge's probabilities spread in the maps
PER_PICTURE = 40  # edges of a picture that teach a forest, of polyps and of the rest each

Edges = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Scene:
    """A cleaned frame at working size, uint8 RGB (h, w, 3), and its edges (n, 4) as x, y, nx, ny.

    view, highlights: bool (h, w), what the endoscope sees and what was painted over.
    """

    rgb: NDArray[np.uint8]
    edges: Edges
    view: NDArray[np.bool_]
    highlights: NDArray[np.bool_]

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width."""
        return self.rgb.shape[0], self.rgb.shape[1]


def look_at(rgb: NDArray[np.uint8]) -> Scene:
    """The scene of a frame, uint8 RGB (H, W, 3). Normals point to the brighter side."""
    small = standard_size(rgb, WORK_PX)
    view = find_view(small)
    highlights = find_highlights(small) & view
    clean = paint_over(small, highlights)
    edges = find_edges(cv2.cvtColor(clean, cv2.COLOR_RGB2GRAY), shrink(view, 3))
    return Scene(clean, edges, view, highlights)


def other_classes(scene: Scene) -> NDArray[np.int64]:
    """The class of every edge as if there were no polyp, int64 (n,).

    Specular: beside a highlight. Lumen: beside a large dark region. Vessel: on a thin valley that red hardly shows.
    """
    grey = cv2.cvtColor(scene.rgb, cv2.COLOR_RGB2GRAY)
    dark = cv2.GaussianBlur(grey, (0, 0), 3) < 0.45 * np.median(grey)
    dark = cv2.morphologyEx(dark.astype(np.uint8), cv2.MORPH_OPEN, np.ones((9, 9), np.uint8)) > 0
    weights = np.array([0.299, 0.587, 0.114], np.float32)
    vessels = without_vessels(scene.rgb) - scene.rgb.astype(np.float32) @ weights > 3.0
    column, row = scene.edges[:, 0].astype(int), scene.edges[:, 1].astype(int)
    out = np.full(len(column), OTHER, np.int64)
    for code, mask in ((VESSEL, grow(vessels, 2)), (LUMEN, grow(dark, 5)), (SPECULAR, grow(scene.highlights, 2))):
        out[mask[row, column]] = code
    return out


def label_edges(scene: Scene, mask: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Class of every edge, int64 (n,), -1 where it is neither clearly of a polyp nor clearly not; and whether its
    normal points into the polyp. mask: bool (h, w) at working size."""
    labels = other_classes(scene)
    inside = np.zeros(len(labels), np.bool_)
    if not mask.any() or mask.all():
        return labels, inside
    padded = mask.astype(np.uint8)
    depth = cv2.distanceTransform(padded, cv2.DIST_L2, 5) - cv2.distanceTransform(1 - padded, cv2.DIST_L2, 5)
    smooth = cv2.GaussianBlur(depth, (0, 0), 2.0)
    gx, gy = cv2.Sobel(smooth, cv2.CV_32F, 1, 0), cv2.Sobel(smooth, cv2.CV_32F, 0, 1)
    column, row = scene.edges[:, 0].astype(int), scene.edges[:, 1].astype(int)
    inward = np.stack([gx[row, column], gy[row, column]], axis=1)
    inward /= np.maximum(np.linalg.norm(inward, axis=1, keepdims=True), 1e-6)
    cosine = (inward * scene.edges[:, 2:]).sum(axis=1)
    near = np.abs(depth[row, column])
    labels[near < 8] = -1
    labels[(near < 4.5) & (np.abs(cosine) > 0.6)] = POLYP
    return labels, np.asarray(cosine > 0)


@dataclass(frozen=True, eq=False)
class EdgeForests:
    """The two trained layers."""

    first: Forest
    second: Forest

    def judge(self, scene: Scene) -> tuple[Edges, NDArray[np.float32]]:
        """Edges with their normals towards the polyp if they bound one, and the probability that they do."""
        if not len(scene.edges):
            return scene.edges, np.zeros(0, np.float32)
        both = self.second.probability(second_look(self.first, scene))[:, 1].reshape(2, -1)
        other_side = both[1] > both[0]
        edges = np.where(other_side[:, None], turned(scene.edges), scene.edges)
        return edges, both.max(axis=0)


def both_sides(scene: Scene) -> Edges:
    """All edges, then all again with their normals turned."""
    return np.concatenate([scene.edges, turned(scene.edges)])


def second_look(first: Forest, scene: Scene) -> NDArray[np.float32]:
    """What the second forest sees of each edge of `both_sides`: what the first says of it, from either side, and the
    maps around it."""
    edges = both_sides(scene)
    n = len(scene.edges)
    said = first.probability(describe(scene.rgb.astype(np.float32), edges))
    maps = _spread(scene, np.maximum(said[:n], said[n:]))
    return np.concatenate([said, np.roll(said, n, axis=0), context(maps, edges)], axis=1)


def _spread(scene: Scene, said: NDArray[np.float32]) -> NDArray[np.float32]:
    """Probabilities of edges (n, classes) as smooth maps, float32 (h, w, classes); high where many edges are sure."""
    maps = np.zeros((*scene.shape, said.shape[1]), np.float32)
    maps[scene.edges[:, 1].astype(int), scene.edges[:, 0].astype(int)] = said
    return np.asarray(cv2.GaussianBlur(maps, (0, 0), SPREAD_PX), dtype=np.float32)


def fit_edges(
    scenes: Sequence[Scene], masks: Sequence[NDArray[np.bool_]], *, trees: int = 24, seed: int = 0
) -> EdgeForests:
    """Train both layers, each on other pictures: the first is surer of pictures that it learned from than of new ones,
    and the second must not learn to trust that."""
    first_half = np.zeros(len(scenes), np.bool_)
    polyps = np.array([mask.any() for mask in masks], np.bool_)
    for kind in (polyps, ~polyps):
        block = max(1, min(10, int(kind.sum()) // 2))  # neighbours resemble one another, so they stay together
        first_half[kind] = np.arange(kind.sum()) // block % 2 == 0
    rng = np.random.default_rng(seed)
    values, answers = [], []
    for i in np.flatnonzero(first_half):
        edges, labels = _lesson(scenes[i], masks[i], rng)
        values.append(describe(scenes[i].rgb.astype(np.float32), both_sides(scenes[i])[edges]))
        answers.append(labels)
    first = _fit(values, answers, len(CLASSES), trees, seed)
    values, answers = [], []
    for i in np.flatnonzero(~first_half):
        if len(scenes[i].edges):
            edges, labels = _lesson(scenes[i], masks[i], rng)
            values.append(second_look(first, scenes[i])[edges])
            answers.append(np.asarray(labels == POLYP, dtype=np.int64))
    return EdgeForests(first, _fit(values, answers, 2, trees, seed + 1))


def _fit(
    values: list[NDArray[np.float32]], answers: list[NDArray[np.int64]], classes: int, trees: int, seed: int
) -> Forest:
    labels = np.concatenate(answers) if answers else np.zeros(0, np.int64)
    if len(set(labels.tolist())) < 2:
        raise InputError("training: expected edges of polyps and others among the pictures, found one kind; add more.")
    return fit_forest(np.concatenate(values), labels, classes, trees=trees, seed=seed)


def _lesson(
    scene: Scene, mask: NDArray[np.bool_], rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Indices into `both_sides` and their classes. The outer side of a polyp's edge is an example of something else."""
    labels, inside = label_edges(scene, mask)
    polyp = labels == POLYP
    sides = np.concatenate([np.where(polyp & ~inside, OTHER, labels), np.where(polyp & inside, OTHER, labels)])
    chosen = []
    for kind in (np.flatnonzero(sides == POLYP), np.flatnonzero((sides >= 0) & (sides != POLYP))):
        chosen.append(kind if len(kind) <= PER_PICTURE else np.sort(rng.choice(kind, PER_PICTURE, replace=False)))
    edges = np.concatenate(chosen)
    return edges, sides[edges]
