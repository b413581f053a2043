"""Truth and prediction side by side, frame by frame, for the depth, size and propagation evaluations.

Truth is a data set in the PolypSense3D layout. Predictions are folders of depth maps (16 bits, or NumPy arrays) and of
8-bit masks or probabilities with the same names (SEQUENCE/STEM.png), or the shipped models, which are then run here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from polypscope.datasets.files import ClipFiles
from polypscope.datasets.polypsense3d import DATASET, read_field_of_view
from polypscope.evaluation.depth import DepthFrame
from polypscope.evaluation.propagation import PolypView
from polypscope.io.depth import DEPTH_UNIT_MM, read_depth
from polypscope.io.images import read_rgb
from polypscope.io.masks import read_probability
from polypscope.io.paths import require_folder
from polypscope.io.tables import read_table
from polypscope.pipeline.measure import measurable
from polypscope.pipeline.models import Models
from polypscope.records import BinaryMask, Camera, DepthKind, DepthMap, UsageError
from polypscope.records.errors import DamagedInput, MissingInput

__all__ = ["Predictions", "depth_frames", "matching", "polyp_views", "sequences", "sparse_frames"]

_LEAST_PIXELS = 30
_THRESHOLD = 0.5
_PICTURES = (".png", ".tif", ".tiff")
_SUFFIXES = {"masks": _PICTURES, "depth": (".npy", *_PICTURES)}  # beside an array, a picture is there to be looked at


@dataclass(frozen=True)
class Predictions:
    """Where predictions come from: folders, or models that are run; either part may be missing.

    With `careful`, a depth network looks at each frame in all its flips and quarter turns, as `polypscope measure` lets
    it. `depth_unit` is the unit in mm of depth maps that do not say theirs.
    """

    masks: Path | None = None
    depth: Path | None = None
    models: Models | None = None
    threshold: float = _THRESHOLD
    careful: bool = False
    depth_unit: float | None = None

    def of(
        self, clip: ClipFiles, stem: str, image: Path, camera: Camera
    ) -> tuple[NDArray[np.bool_] | None, DepthMap | None]:
        """Predicted mask and depth of one frame at the camera's size; None for what there is none of."""
        mask = depth = None
        rgb = read_rgb(image) if self.models is not None and (self.masks is None or self.depth is None) else None
        if self.masks is not None:
            found = _file(self.masks, clip.clip, stem, "masks")
            mask = None if found is None else _to_size(read_probability(found).values, camera) >= self.threshold
        elif self.models is not None and rgb is not None:
            mask = measurable(self.models.seer.step(rgb), self.threshold)
        if self.depth is not None:
            found = _file(self.depth, clip.clip, stem, "depth")
            depth = None if found is None else _read_predicted_depth(found, self.depth_unit)
        elif self.models is not None and self.models.ranger is not None and rgb is not None:
            depth = self.models.ranger.depth(rgb, camera, careful=self.careful)
        return mask, depth

    def pass_by(self, image: Path) -> None:
        """Let models that remember see a frame that is not measured, as they do in a video."""
        if self.models is not None and self.masks is None:
            self.models.seer.step(read_rgb(image))

    def restart(self) -> None:
        """Forget the last sequence: streaming models must not carry it over."""
        if self.models is not None:
            self.models.seer.reset()


def sequences(root: Path) -> list[ClipFiles]:
    """The sequences of a data set in the PolypSense3D layout."""
    return DATASET.files(require_folder(root, "data set"))


def depth_frames(root: Path, predictions: Predictions, *, every: int = 1) -> Iterator[DepthFrame]:
    """True and predicted depth of every n-th frame."""
    missing = 0
    for clip, camera, position, stem, image, depth_path, mask_path in _frames(root, every, predictions):
        _, predicted = predictions.of(clip, stem, image, camera)
        if predicted is None:
            missing += 1
            continue
        if depth_path is None:
            continue
        truth = DATASET.depth(clip, clip.frames[position])
        instances = None if mask_path is None else DATASET.instances(clip, clip.frames[position])
        polyp = None if instances is None else instances > 0
        yield DepthFrame(clip.clip, position, _seen(truth, clip), _fitted(predicted, truth), polyp)
    if missing:
        _complain_if_all_missing(root, predictions, missing, every)


def polyp_views(
    root: Path, predictions: Predictions, *, every: int = 1, doctors: Mapping[str, float] | None = None, group: str = ""
) -> Iterator[PolypView]:
    """Every polyp of every n-th frame; polyps are named SEQUENCE/ID, because ids repeat between sequences.

    Models see the frames in between as well.
    """
    for clip, camera, position, stem, image, depth_path, mask_path in _frames(root, every, predictions, passing=True):
        if depth_path is None or mask_path is None:
            continue
        instances = DATASET.instances(clip, clip.frames[position])
        known = {p.id: p for p in DATASET.polyps([clip])}
        present = [i for i in np.unique(instances).tolist() if i and np.count_nonzero(instances == i) >= _LEAST_PIXELS]
        mask, predicted = (None, None)
        if present or predictions.models is not None:
            mask, predicted = predictions.of(clip, stem, image, camera)
        if not present:
            continue
        truth = DATASET.depth(clip, clip.frames[position])
        seen = _field_of_view(clip)
        for i in present:
            polyp = known.get(i)
            if polyp is None or polyp.size_mm is None:
                continue
            name = f"{clip.clip}/{i}"
            yield PolypView(
                polyp=name,
                true_mm=polyp.size_mm,
                camera=camera,
                true_mask=BinaryMask(instances == i),
                true_depth=truth,
                predicted_mask=None if mask is None else matching(mask, instances == i),
                predicted_depth=None if predicted is None else _fitted(predicted, truth),
                doctor_mm=None if doctors is None else doctors.get(name),
                group=group,
                field_of_view=seen,
            )


def sparse_frames(points: Path, predictions_root: Path, depth_unit: float | None = None) -> Iterator[DepthFrame]:
    """Depth at a few known points (forceps contacts): a table of sequence, frame, x_px, y_px and depth_mm.

    `frame` is the stem of the predicted map: SEQUENCE/STEM.png under the folder of predictions.
    """
    table = read_table(points, columns=("sequence", "frame", "x_px", "y_px", "depth_mm"))
    groups: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
    for row in table.iter_rows(named=True):
        try:
            values = (float(row["x_px"]), float(row["y_px"]), float(row["depth_mm"]))
        except (TypeError, ValueError):
            raise DamagedInput(f"{points}: expected numbers in x_px, y_px and depth_mm, found {row}.") from None
        groups.setdefault((str(row["sequence"]), str(row["frame"])), []).append(values)
    for number, ((sequence, stem), known) in enumerate(groups.items()):
        found = _file(predictions_root, sequence, stem, "depth")
        if found is None:
            raise MissingInput(f"{predictions_root}: expected {sequence}/{stem}.png for the points given, found none.")
        predicted = _read_predicted_depth(found, depth_unit)
        truth = np.full(predicted.shape, np.nan, np.float32)
        for x, y, depth in known:
            row, column = round(y), round(x)
            if not (0 <= row < predicted.shape[0] and 0 <= column < predicted.shape[1]) or depth <= 0:
                raise DamagedInput(
                    f"{points}: expected a point inside the {predicted.shape[1]}x{predicted.shape[0]} map with a depth "
                    f"above 0, found ({x:g}, {y:g}) at {depth:g} mm in {sequence}/{stem}."
                )
            truth[row, column] = depth
        yield DepthFrame(sequence, number, DepthMap(truth, DepthKind.Z_MM), predicted, None)


def _frames(
    root: Path, every: int, predictions: Predictions, *, passing: bool = False
) -> Iterator[tuple[ClipFiles, Camera, int, str, Path, Path | None, Path | None]]:
    if every < 1:
        raise UsageError(f"every: expected 1 or more, found {every}.")
    for clip in sequences(root):
        camera = DATASET.camera(clip)
        if camera is None:
            raise MissingInput(f"{clip.folder}: expected a camera.json, found none; a size needs a calibrated camera.")
        predictions.restart()
        for position, frame in enumerate(clip.frames):
            if position % every:
                if passing:
                    predictions.pass_by(frame.image)
                continue
            yield clip, camera, position, frame.name, frame.image, frame.depth, frame.mask


def _file(root: Path, sequence: str, stem: str, part: str) -> Path | None:
    """SEQUENCE/STEM, SEQUENCE/PART/STEM or STEM under the root, with any of the usual endings."""
    # A table reads 000012 as the number 12; frames of our layout have six digits.
    stems = (stem, stem.zfill(6)) if stem.isdigit() else (stem,)
    for folder in (root / sequence, root / sequence / part, root):
        for name in stems:
            for suffix in _SUFFIXES[part]:
                path = folder / f"{name}{suffix}"
                if path.is_file():
                    return path
    return None


def _read_predicted_depth(path: Path, unit_mm: float | None) -> DepthMap:
    try:
        return read_depth(path, unit_mm=unit_mm)
    except UsageError:
        if unit_mm is not None:
            raise
        return read_depth(path, unit_mm=DEPTH_UNIT_MM)  # our own default where the file does not say


def _to_size(values: NDArray[np.float32], camera: Camera) -> NDArray[np.float32]:
    if values.shape == (camera.height, camera.width):
        return values
    return np.asarray(cv2.resize(values, (camera.width, camera.height), interpolation=cv2.INTER_LINEAR))


def _fitted(predicted: DepthMap, truth: DepthMap) -> DepthMap:
    """A prediction at the truth's size; maps are enlarged by nearest value, so that no depth is invented at edges."""
    if predicted.shape == truth.shape:
        return predicted
    size = (truth.shape[1], truth.shape[0])
    values = cv2.resize(predicted.values, size, interpolation=cv2.INTER_NEAREST)
    sigma = None if predicted.sigma is None else cv2.resize(predicted.sigma, size, interpolation=cv2.INTER_NEAREST)
    return DepthMap(values, predicted.kind, sigma)


def _field_of_view(clip: ClipFiles) -> NDArray[np.bool_] | None:
    found = None if clip.folder is None else read_field_of_view(clip.folder)
    return None if found is None or found.values.all() else found.values


def _seen(truth: DepthMap, clip: ClipFiles) -> DepthMap:
    """Truth without the black surround: what no picture shows cannot be asked of a prediction."""
    seen = _field_of_view(clip)
    return truth if seen is None else DepthMap(np.where(seen, truth.values, np.float32(np.nan)), truth.kind)


def matching(mask: NDArray[np.bool_], truth: NDArray[np.bool_]) -> BinaryMask | None:
    """The predicted part that overlaps a true polyp most, if it overlaps it at all well (IoU of a tenth)."""
    count, labels = cv2.connectedComponents(mask.astype(np.uint8), connectivity=8)
    if count < 2:
        return None
    shared = np.bincount(labels[truth], minlength=count)
    shared[0] = 0
    best = int(np.argmax(shared))
    part = labels == best
    union = np.count_nonzero(part | truth)
    return BinaryMask(part) if shared[best] and shared[best] / union >= 0.1 else None


def _complain_if_all_missing(root: Path, predictions: Predictions, missing: int, every: int) -> None:
    total = sum(len(range(0, len(clip.frames), every)) for clip in sequences(root))
    if missing == total:
        where = predictions.depth if predictions.depth is not None else "the models given"
        raise MissingInput(
            f"{where}: expected a depth map SEQUENCE/STEM.png for each frame of {root}, found none; check the folder."
        )
