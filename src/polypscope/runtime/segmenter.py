"""The segmenter as the rest of the house sees it: RGB frames in, probability maps out, the state kept inside.

The ONNX graph takes `image` (N, H, W, 3) uint8 and any number of `state_*` tensors, and returns `probability`
(N, 1, H, W), `next_*` for each state, and optionally `feature_*`, which the depth head reuses. A state of zeros means
"nothing seen yet".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from polypscope.records import ProbabilityMap
from polypscope.records.errors import ModelError, RecordError
from polypscope.runtime.allocation import keep_pages
from polypscope.runtime.backends import Session, open_session
from polypscope.runtime.cards import ModelCard, find_card

__all__ = ["DEFAULT_SEGMENTER", "DEFAULT_STILLS", "Segmenter", "to_network"]

DEFAULT_SEGMENTER = "polypscope-segmenter-int8"
DEFAULT_STILLS = "polypscope-segmenter-stills"  # for single pictures that need not be quick
# A careful look: findings below this share of the picture are looked at again in a square part of so many times their
# extent, and of at least so much of the picture's shorter side.
SMALL, AROUND, LEAST = 0.05, 3.0, 0.5
CONFIRMED = 0.5  # of the finding must be found again from nearer, or else the second look does not count
DOUBTED = 0.49  # what is left of the probability of an outline that is not drawn
KEPT_BYTES = 2**27  # of freed memory: the maps of the next frame need what those of the last one had


class Segmenter:
    """Outlines polyps in single pictures (`predict`) or frame by frame in a video (`step`).

    >>> segmenter = Segmenter.load()                                              # doctest: +SKIP
    >>> for frame in clip: probability = segmenter.step(frame.rgb)                # doctest: +SKIP
    """

    def __init__(self, card: ModelCard, session: Session) -> None:
        self.card = card
        self._session = session
        names = [name for name, _, _ in session.inputs]
        if card.kind != "segmenter" or "image" not in names or "probability" not in session.outputs:
            raise ModelError(
                f"Model {card.name}: expected a segmenter with input `image` and output `probability`, "
                f"found a {card.kind} with inputs {', '.join(names)} and outputs {', '.join(session.outputs)}."
            )
        image = next(shape for name, shape, _ in session.inputs if name == "image")
        expected = (card.input.height, card.input.width)
        if tuple(image[1:3]) not in (expected, (None, None)):
            raise ModelError(
                f"Model {card.name}: expected an input of {expected[1]}×{expected[0]} as its card says, "
                f"found {image[2]}×{image[1]} in the file; export the model again."
            )
        self._states = [(name, shape, dtype) for name, shape, dtype in session.inputs if name.startswith("state_")]
        self._state: dict[str, NDArray[Any]] = {}
        self._features: dict[str, NDArray[Any]] = {}
        self._last: NDArray[np.uint8] | None = None
        self.reset()

    @classmethod
    def load(cls, name_or_path: str | Path | None = None, threads: int = 2, provider: str = "cpu") -> Segmenter:
        """Open the shipped segmenter, another shipped model by name, or an exported `.onnx` by path.

        Parameters
        ----------
        name_or_path : model name or path; the shipped default when None.
        threads : threads of the runtime.
        provider : "cpu", "openvino", or a device that the installed ONNX Runtime offers.
        """
        keep_pages(KEPT_BYTES)
        card = find_card(DEFAULT_SEGMENTER if name_or_path is None else name_or_path)
        return cls(card, open_session(card.check_file(), threads, provider))

    @property
    def streaming(self) -> bool:
        """Whether `step` remembers earlier frames."""
        return bool(self._states)

    def features_of(self, rgb: NDArray[np.uint8]) -> dict[str, NDArray[Any]]:
        """What heads that share the encoder need of a frame: its features, and `image` as the network saw it.

        Those of the last frame are at hand if this is that very array; otherwise the network runs once, without
        touching the state.
        """
        if self._last is not rgb:
            self._run(to_network(rgb, self.card)[None], self._zeros(1))
            self._last = rgb
        return self._features

    def reset(self) -> None:
        """Forget everything: call it at the start of a clip."""
        self._state = self._zeros(1)

    def renew_anchor(self) -> None:
        """Start anew from the next frame: call it after a scene cut. The anchor will be that frame."""
        self.reset()

    def state(self) -> dict[str, NDArray[Any]]:
        """What is remembered of the frames so far, as named arrays that `restore` takes back."""
        return {name: value.copy() for name, value in self._state.items()}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on where a segmenter of the same model stood.

        Parameters
        ----------
        state : what `state` gave.
        """
        expected = {name: value.shape for name, value in self._zeros(1).items()}
        found = {name: np.shape(value) for name, value in state.items()}
        if expected != found:
            raise ModelError(f"Model {self.card.name}: expected a state of {expected}, found {found}; start anew.")
        self._state = {name: np.array(value) for name, value in state.items()}

    def step(self, rgb: NDArray[np.uint8]) -> ProbabilityMap:
        """Probability at the frame's own size, given the frames before it.

        Parameters
        ----------
        rgb : (H, W, 3) uint8.
        """
        outputs = self._run(to_network(rgb, self.card)[None], self._state)
        self._last = rgb
        self._state = {name: outputs[name.replace("state_", "next_", 1)] for name, _, _ in self._states}
        return _at_size(outputs["probability"][0, 0], rgb)

    def predict(self, rgb: NDArray[np.uint8], careful: bool = False) -> ProbabilityMap:
        """Probability of a single picture (H, W, 3) uint8, at its own size; the state is neither used nor changed."""
        return self.predict_batch([rgb], careful)[0]

    def predict_batch(self, pictures: Sequence[NDArray[np.uint8]], careful: bool = False) -> list[ProbabilityMap]:
        """Probabilities of single pictures of any sizes, in one run of the network.

        Parameters
        ----------
        careful : average over the picture and its mirror image, look at a small finding again from nearer, and outline
            beside the surest finding only those that somewhere reach the card's threshold: outlines gain, at two to
            four times the price.
        """
        batch = np.stack([to_network(rgb, self.card) for rgb in pictures])
        probability = self._run(batch, self._zeros(len(batch)))["probability"][:, 0]
        self._last = pictures[0] if len(pictures) == 1 else None
        if not careful:
            return [_at_size(values, rgb) for values, rgb in zip(probability, pictures, strict=True)]
        features = self._features
        found = self._with_mirror(batch, probability)
        maps = [self._nearer(_at_size(values, rgb), rgb) for values, rgb in zip(found, pictures, strict=True)]
        self._features = features
        return [_without_doubtful(values, self.card.threshold) for values in maps]

    def _with_mirror(self, batch: NDArray[np.uint8], probability: NDArray[np.float32]) -> NDArray[np.float32]:
        """Mean over the batch, whose probability (N, H, W) is known, and its mirror image, left for right."""
        mirrored = np.ascontiguousarray(batch[:, :, ::-1])
        return (probability + self._run(mirrored, self._zeros(len(batch)))["probability"][:, 0, :, ::-1]) / 2

    def _nearer(self, whole: ProbabilityMap, rgb: NDArray[np.uint8]) -> ProbabilityMap:
        """The map with what a second look at a small finding says: the mean of both logits in the part looked at.

        It may draw the finding better, not erase it: from nearer, a soft picture shows less than it did.
        """
        part = _around_small(whole.values)
        if part is None:
            return whole
        cut = np.ascontiguousarray(rgb[part])
        batch = to_network(cut, self.card)[None]
        again = self._with_mirror(batch, self._run(batch, self._zeros(1))["probability"][:, 0])
        near = _at_size(again[0], cut).values
        found = whole.values[part] >= 0.5
        if (found & (near >= 0.5)).sum() < CONFIRMED * found.sum():
            return whole
        # The mean of two logits, as odds; neither look may rule the other out.
        first, second = (np.clip(values, 1e-4, 1 - 1e-4) for values in (whole.values[part], near))
        odds = np.sqrt(first / (1 - first) * second / (1 - second))
        values = whole.values.copy()
        values[part] = odds / (1 + odds)
        return ProbabilityMap(values)

    def _run(self, batch: NDArray[np.uint8], state: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        outputs = self._session.run({"image": batch, **state})
        features = {name: value for name, value in outputs.items() if name.startswith("feature_")}
        self._features = {"image": batch, **features}
        return outputs

    def _zeros(self, count: int) -> dict[str, NDArray[Any]]:
        return {name: np.zeros((count, *(n or 1 for n in shape[1:])), dtype) for name, shape, dtype in self._states}


def to_network(rgb: NDArray[np.uint8], card: ModelCard) -> NDArray[np.uint8]:
    """The picture as the network wants it: uint8 (height, width, 3) of the card's size."""
    if not isinstance(rgb, np.ndarray) or rgb.dtype != np.uint8 or rgb.ndim != 3 or rgb.shape[2] != 3 or rgb.size == 0:
        found = f"{rgb.dtype} {rgb.shape}" if isinstance(rgb, np.ndarray) else type(rgb).__name__
        raise RecordError.of("rgb", expected="uint8 (H, W, 3)", found=found, hint="give 8-bit RGB")
    size = (card.input.width, card.input.height)
    if rgb.shape[1::-1] == size:
        return rgb
    if card.input.interpolation == "area":
        from polypscope.runtime.area import shrunk  # compiled code, which only those need who run a network

        return shrunk(rgb, *size)
    return np.asarray(cv2.resize(rgb, size, interpolation=cv2.INTER_LINEAR), np.uint8)


def _at_size(probability: NDArray[np.float32], rgb: NDArray[np.uint8]) -> ProbabilityMap:
    height, width = rgb.shape[:2]
    # Clipped while it is small: interpolation between values in [0, 1] stays there.
    small = np.clip(probability, 0.0, 1.0)
    return ProbabilityMap(cv2.resize(small, (width, height), interpolation=cv2.INTER_LINEAR))


def _around_small(probability: NDArray[np.float32]) -> tuple[slice, slice] | None:
    """The square part (rows, columns) around the surest finding, if all findings together are small."""
    found = (probability >= 0.5).astype(np.uint8)
    if not 0 < found.mean() < SMALL:
        return None
    count, labels, boxes, _ = cv2.connectedComponentsWithStats(found)
    mass = np.bincount(labels.ravel(), probability.ravel(), minlength=count)
    left, top, wide, high, _ = (int(value) for value in boxes[1 + int(np.argmax(mass[1:]))])
    shorter = min(found.shape)
    side = int(min(max(AROUND * max(wide, high), LEAST * shorter), shorter))
    row, column = (
        int(np.clip(start + extent // 2 - side // 2, 0, length - side))
        for start, extent, length in zip((top, left), (high, wide), found.shape, strict=True)
    )
    return slice(row, row + side), slice(column, column + side)


def _without_doubtful(whole: ProbabilityMap, threshold: float) -> ProbabilityMap:
    """The map with every outline at a half put below it that nowhere reaches `threshold`, but for the surest one.

    Where one polyp is plain to see, a second outline of which the network is nowhere sure is mostly a fold; where
    nothing is, the best guess is worth more than none.
    """
    found = whole.values >= 0.5
    count, labels = cv2.connectedComponents(found.astype(np.uint8))
    if count <= 2:
        return whole
    peaks = np.zeros(count, np.float32)
    np.maximum.at(peaks, labels[found], whole.values[found])
    doubted = found & (peaks < min(threshold, float(peaks.max())))[labels]
    return ProbabilityMap(np.where(doubted, np.float32(DOUBTED), whole.values))
