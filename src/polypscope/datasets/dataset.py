"""One data set: its card, its files, and from these its lazy records and its check."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from polypscope.datasets.card import DatasetCard
from polypscope.datasets.files import ClipFiles, FrameFiles
from polypscope.datasets.outcome import CheckReport, Problem
from polypscope.io.depth import read_depth
from polypscope.io.images import image_size, read_rgb
from polypscope.io.masks import MaskThreshold, connected_instances, read_mask
from polypscope.io.paths import require_folder
from polypscope.io.sources import open_source
from polypscope.records import Box, Camera, Case, Clip, Frame, GroundTruth, Sample, TruePolyp
from polypscope.records.errors import DamagedInput

__all__ = ["ASSUMED_FPS", "Dataset"]

ASSUMED_FPS = 25.0
"""Rate that gives frames without time stamps theirs."""


class Dataset(ABC):
    """A data-set adapter: subclasses say which files there are, and override what differs from stills with masks."""

    card: DatasetCard
    threshold = MaskThreshold.AT_LEAST_128
    empty_masks_are_normal = False
    """Whether a mask without polyp is a frame without polyp, and no fault."""
    fps = ASSUMED_FPS

    @abstractmethod
    def files(self, root: Path) -> list[ClipFiles]:
        """The clips under `root`; raises MissingInput, naming the folders it looked for, if this is another layout."""

    def cases(self, root: str | Path) -> Iterator[Case]:
        """Cases in order; nothing is decoded until a sample is asked for its frame or truth.

        A case holds the clips of one patient, centre or sequence within one split. Its metadata has the split's name.
        """
        clips = self.files(require_folder(root, f"folder of {self.card.title}"))
        grouped: dict[tuple[str, str], list[ClipFiles]] = {}
        for clip in clips:
            grouped.setdefault((clip.split, clip.case), []).append(clip)
        for (split, case), members in grouped.items():
            metadata = {**({"split": split} if split else {}), **members[0].metadata}
            name = f"{split}/{case}" if split else case
            yield Case(name, tuple(self.clip_record(files) for files in members), self.polyps(members), metadata)

    def check(self, root: str | Path, *, jobs: int = 1) -> CheckReport:
        """Read everything under `root` and say in words what is wrong."""
        from polypscope.datasets.checking import check_files

        return check_files(self, require_folder(root, f"folder of {self.card.title}"), jobs=jobs)

    def further_problems(self, root: Path, clips: Sequence[ClipFiles]) -> Iterator[Problem]:
        """Faults that only this data set can have."""
        return iter(())

    def further_notes(self, clips: Sequence[ClipFiles]) -> Iterator[str]:
        """Remarks that only this data set needs, such as the published size of its parts."""
        return iter(())

    def polyps(self, clips: Sequence[ClipFiles]) -> tuple[TruePolyp, ...]:
        """What is known of the polyps of a case, beyond pixels."""
        return ()

    def camera(self, clip: ClipFiles) -> Camera | None:
        """The camera of a clip, where known."""
        return None

    def boxes(self, clip: ClipFiles, frame: FrameFiles) -> tuple[Box, ...]:
        """Boxes of a frame that has no mask, where given."""
        return ()

    def clip_record(self, clip: ClipFiles) -> Clip:
        """The lazy record of a clip."""
        read: Callable[[int], Frame]
        if clip.video is not None:
            read = _VideoFrames(clip.video)
        else:
            read = partial(self._read_image, clip.frames)
        samples = [
            Sample(frame.name, partial(read, index), partial(self.truth, clip, index))
            for index, frame in enumerate(clip.frames)
        ]
        return Clip(clip.clip, samples, clip.is_video, self.camera(clip))

    def _read_image(self, frames: tuple[FrameFiles, ...], index: int) -> Frame:
        image = frames[index].image
        assert image is not None
        return Frame(index, self.pts_s(frames[index], index), read_rgb(image))

    def pts_s(self, frame: FrameFiles, index: int) -> float:
        """Time stamp of a frame in s."""
        return frame.pts_s if frame.pts_s is not None else index / self.fps

    def truth(self, clip: ClipFiles, index: int) -> GroundTruth | None:
        """The truth of one frame, or None where nothing is known."""
        frame = clip.frames[index]
        pts_s = self.pts_s(frame, index)
        if frame.mask is not None:
            instances = self.instances(clip, frame)
            shape = (int(instances.shape[0]), int(instances.shape[1]))
            known = {polyp.id: polyp for polyp in self.polyps([clip])}
            ids = [int(label) for label in np.unique(instances) if label]
            polyps = tuple(known.get(label, TruePolyp(label)) for label in ids)
            depth = None if frame.depth is None else self.depth(clip, frame)
            return GroundTruth(index, pts_s, shape, polyps, instances, depth)
        boxes = self.boxes(clip, frame)
        if not frame.negative and not boxes and frame.depth is None:
            return None
        shape = self._shape(clip, frame)
        polyps = tuple(TruePolyp(i + 1, box=box) for i, box in enumerate(boxes))
        instances = np.zeros(shape, np.uint16) if frame.negative else None
        depth = None if frame.depth is None else self.depth(clip, frame)
        return GroundTruth(index, pts_s, shape, polyps, instances, depth)

    def instances(self, clip: ClipFiles, frame: FrameFiles) -> np.ndarray[Any, np.dtype[np.uint16]]:
        """Label map of a frame: separate regions of the mask are separate polyps."""
        assert frame.mask is not None
        return connected_instances(read_mask(frame.mask, self.threshold))

    def depth(self, clip: ClipFiles, frame: FrameFiles) -> Any:
        """Depth map of a frame."""
        assert frame.depth is not None
        return read_depth(frame.depth)

    def _shape(self, clip: ClipFiles, frame: FrameFiles) -> tuple[int, int]:
        if clip.video is not None:
            with open_source(clip.video) as source:
                return source.info.height, source.info.width
        assert frame.image is not None
        width, height = image_size(frame.image)
        return height, width


class _VideoFrames:
    """Frames of a video by index: each is decoded once when they are asked for in order, as a clip does."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._frames: Iterator[Frame] | None = None
        self._last: Frame | None = None

    def __call__(self, index: int) -> Frame:
        if self._last is None or index < self._last.index or self._frames is None:
            self._frames, self._last = iter(open_source(self._path)), None
        while self._last is None or self._last.index < index:
            following = next(self._frames, None)
            if following is None:
                break
            self._last = following
        if self._last is None or self._last.index != index:
            raise DamagedInput(f"{self._path}: expected a frame {index}, found it damaged or missing; check the file.")
        return self._last
