"""ASU: shape in context, then an ensemble of networks (Tajbakhsh, Gurudu and Liang, TMI 35, 2016, and ISBI 2015).

1. Canny edges with their normals, in the cleaned picture.
2. Two forests keep the edges that bound a polyp and turn their normals towards it (`edge_classes`).
3. The kept edges vote along their normals, in four groups by orientation that are multiplied; the maxima of the map are
   candidates, and its contour around each gives a box (`edge_votes`).
4. Small networks look at every box, one at colour and one at shape; their mean is the confidence (`patch_cnn`).

Where this differs from the authors': classes of edges other than polyps are guessed from the picture, lengths are
shares of the picture, and the third network, which looks at the frames before, is left out: a method here keeps nothing
from one frame to the next, and the pictures to learn from are stills. The box is the contour's times a factor that
depends on its size. The threshold is the one with the best F1 on training pictures that nothing had learned from.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from polypscope.methods.edge_classes import CLASSES, EdgeForests, Scene, look_at
from polypscope.methods.edge_patches import CONTEXT, DESCRIBED
from polypscope.methods.edge_votes import Candidate, find_candidates, vote_map
from polypscope.methods.forest import Forest
from polypscope.methods.method import Look, Method, check_frame
from polypscope.methods.patch_cnn import ROOM, PatchCnn, shapes
from polypscope.methods.trained import read_arrays, write_arrays
from polypscope.records import Box, Detection
from polypscope.records.errors import DamagedInput, RecordError

__all__ = ["CHANNELS", "Asu", "Ballot", "Proposals", "propose", "score", "strongest", "vote"]

KEEP = 0.3  # probability from which an edge votes
MARGIN = 1.5  # side of what the networks see by the longer side of the box
CHANNELS = {"colour": slice(0, 3), "shape": slice(3, 6)}
"""What each network sees of a patch: red, green and blue; or grey, bounds and votes."""
_SEEN_BY_SECOND = (2 + CONTEXT) * len(CLASSES)

Boxes = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Ballot:
    """The vote map of a scene, its maxima, and uint8 (h, w, 3) what the shape network sees: grey, bounds and votes."""

    energy: NDArray[np.float32]
    candidates: list[Candidate]
    planes: NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Proposals:
    """Candidates with their boxes (n, 4) as left, top, right, bottom in pixels of the scene, and what the networks see
    of each: uint8 (n, ROOM, ROOM, 6)."""

    candidates: list[Candidate]
    boxes: Boxes
    patches: NDArray[np.uint8]


class Asu(Method):
    """The trained method.

    growth: (a, b) of log radius of a polyp = a + b · log radius of its contour. networks: by name, as `CHANNELS`.
    threshold: mean score of the networks from which a candidate is reported.
    """

    def __init__(
        self, edges: EdgeForests, growth: tuple[float, float], networks: dict[str, PatchCnn], threshold: float
    ) -> None:
        self.edges, self.growth, self.networks, self.threshold = edges, growth, networks, threshold

    def look(self, rgb: NDArray[np.uint8]) -> Look:
        check_frame(rgb)
        height, width = rgb.shape[:2]
        scene = look_at(rgb)
        ballot = vote(scene, self.edges)
        seen = propose(scene, ballot, self.growth)
        scores = score(self.networks, seen.patches)
        scale_x, scale_y = width / scene.shape[1], height / scene.shape[0]
        found = []
        for i in strongest(seen, scores, self.threshold):
            x = float(np.clip((seen.candidates[i].x + 0.5) * scale_x - 0.5, 0, width - 1))
            y = float(np.clip((seen.candidates[i].y + 0.5) * scale_y - 0.5, 0, height - 1))
            left, top, right, bottom = seen.boxes[i]
            box = Box(left * scale_x, top * scale_y, (right - left) * scale_x, (bottom - top) * scale_y)
            found.append(Detection((x, y), score=float(scores[i]), box=box))
        whole = np.clip(cv2.resize(ballot.energy, (width, height), interpolation=cv2.INTER_LINEAR), 0, 1)
        return Look(tuple(found), whole.astype(np.float32))

    def save(self, path: Path) -> Path:
        """Write the trained method as .npz."""
        arrays: dict[str, NDArray[np.generic]] = {
            "growth": np.array(self.growth),
            "report_from": np.array([self.threshold]),
        }
        for name, forest in (("first", self.edges.first), ("second", self.edges.second)):
            arrays |= {f"{name}_{field.name}": getattr(forest, field.name) for field in fields(Forest)}
        for name, network in self.networks.items():
            arrays |= {f"{name}_{k}": w for k, w in enumerate(network.weights)}
            arrays |= {f"{name}_mean": network.mean, f"{name}_deviation": network.deviation}
        return write_arrays(path, "asu", arrays)

    @classmethod
    def load(cls, path: Path) -> Asu:
        """Read what `save` wrote."""
        expected: dict[str, tuple[int | str, ...]] = {"growth": (2,), "report_from": (1,)}
        for name, classes in (("first", len(CLASSES)), ("second", 2)):
            expected[f"{name}_root"] = (f"{name} trees",)
            expected |= {f"{name}_{field}": (f"{name} nodes",) for field in ("feature", "threshold", "child")}
            expected[f"{name}_share"] = (f"{name} nodes", classes)
        for name in CHANNELS:
            expected |= {f"{name}_{k}": shape for k, shape in enumerate(shapes(3))}
            expected |= {f"{name}_mean": (3,), f"{name}_deviation": (3,)}
        a = read_arrays(path, "asu", expected)
        for name, length in (("first", DESCRIBED), ("second", _SEEN_BY_SECOND)):
            most = int(a[f"{name}_feature"].max())
            if most >= length:
                raise DamagedInput(f"{path}: expected features below {length}, found {most}; train it again.")
        threshold = float(a["report_from"][0])
        if not 0 <= threshold <= 1:
            raise DamagedInput(f"{path}: expected a threshold from 0 to 1, found {threshold:g}; train it again.")
        try:
            edges = EdgeForests(_forest(a, "first"), _forest(a, "second"))
            networks = {name: _network(a, name) for name in CHANNELS}
        except RecordError as error:
            raise DamagedInput(f"{path}: {error} Train it again.") from None
        return cls(edges, (float(a["growth"][0]), float(a["growth"][1])), networks, threshold)


def _forest(a: dict[str, NDArray[np.generic]], name: str) -> Forest:
    whole = (a[f"{name}_{field}"].astype(np.int32) for field in ("root", "feature", "child"))
    root, feature, child = whole
    threshold, share = (a[f"{name}_{field}"].astype(np.float32) for field in ("threshold", "share"))
    return Forest(root, feature, threshold, child, share)


def _network(a: dict[str, NDArray[np.generic]], name: str) -> PatchCnn:
    weights = tuple(a[f"{name}_{k}"].astype(np.float32) for k in range(len(shapes(3))))
    return PatchCnn(weights, a[f"{name}_mean"].astype(np.float32), a[f"{name}_deviation"].astype(np.float32))


def vote(scene: Scene, edges: EdgeForests) -> Ballot:
    towards, probability = edges.judge(scene)
    kept = probability >= KEEP
    # Squares, so that many edges that are hardly believed do not outvote a few that are.
    energy = vote_map(towards[kept], probability[kept] ** 2, scene.view)
    bounds = np.zeros(scene.shape, np.float32)
    bounds[towards[:, 1].astype(int), towards[:, 0].astype(int)] = probability
    planes = [
        cv2.cvtColor(scene.rgb, cv2.COLOR_RGB2GRAY),
        np.clip(2 * 255 * cv2.GaussianBlur(bounds, (0, 0), 1.0), 0, 255).astype(np.uint8),
        (255 * cv2.resize(energy, scene.shape[::-1], interpolation=cv2.INTER_LINEAR)).astype(np.uint8),
    ]
    return Ballot(energy, find_candidates(energy), np.dstack(planes))


def propose(scene: Scene, ballot: Ballot, growth: tuple[float, float]) -> Proposals:
    boxes = np.array([_grown(c, growth, scene.shape) for c in ballot.candidates]).reshape(-1, 4)
    patches = [np.concatenate([_cut(p, box) for p in (scene.rgb, ballot.planes)], axis=2) for box in boxes]
    table = np.stack(patches) if patches else np.zeros((0, ROOM, ROOM, 6), np.uint8)
    return Proposals(ballot.candidates, boxes, table)


def _grown(candidate: Candidate, growth: tuple[float, float], shape: tuple[int, int]) -> tuple[float, ...]:
    """The contour's box, grown about its middle to a polyp's size, which is at most the picture's."""
    radius = max(candidate.radius(), 1.0)
    factor = np.exp(np.clip(growth[0] + growth[1] * np.log(radius), 1.0, np.log(max(shape)))) / radius
    left, top, right, bottom = candidate.contour
    x, y, half_x, half_y = (left + right) / 2, (top + bottom) / 2, (right - left) / 2, (bottom - top) / 2
    return x - factor * half_x, y - factor * half_y, x + factor * half_x, y + factor * half_y


def _cut(picture: NDArray[np.uint8], box: Boxes) -> NDArray[np.uint8]:
    """The square around a box with its margin, at the size that networks learn from; black beyond the picture."""
    left, top, right, bottom = box
    half = MARGIN / 2 * max(right - left, bottom - top)
    step = 2 * half / ROOM
    off = half - step / 2
    move = np.array([[step, 0, (left + right) / 2 - off], [0, step, (top + bottom) / 2 - off]])
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    return np.asarray(cv2.warpAffine(picture, move, (ROOM, ROOM), flags=flags), dtype=np.uint8)


def score(networks: dict[str, PatchCnn], patches: NDArray[np.uint8]) -> NDArray[np.float32]:
    """The ensemble's mean."""
    answers = [network.probability(patches[..., CHANNELS[name]]) for name, network in networks.items()]
    return np.asarray(np.mean(answers, axis=0))


def strongest(seen: Proposals, scores: NDArray[np.float32], threshold: float) -> list[int]:
    """Candidates from `threshold` on, best first, without those whose place lies in the box of a better one."""
    kept: list[int] = []
    for i in np.argsort(-scores, kind="stable"):
        if scores[i] < threshold:
            break
        one = seen.candidates[i]
        inside = [b[0] <= one.x <= b[2] and b[1] <= one.y <= b[3] for b in seen.boxes[kept]]
        if not any(inside):
            kept.append(int(i))
    return kept
