"""The way of a frame through the pipeline, in two halves.

`Eye.look` does the heavy work of one frame and yields `Findings`: first `glance` (picture, segmentation, depth), which
needs the frame before, then `judge` (components and their sizes), which does not, so that a recording can be judged in
one thread while another glances at the next frame. `Memory.take` does the light work over time (tracks, sizes, best
frames) from `Findings` alone, so that it can be replayed from a journal. Video files, live cameras, the simulator and
the demo all go through these two.
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from polypscope.geometry.scale import ScaleCourse
from polypscope.pipeline.best import BestFrames
from polypscope.pipeline.findings import Findings, Working
from polypscope.pipeline.follow import Follower, FollowSettings, Shown, Tracked
from polypscope.pipeline.locate import locate
from polypscope.pipeline.measure import CLEAR, TrackSizes, measured
from polypscope.pipeline.picture import Picture, PictureReader
from polypscope.pipeline.see import Ranger, Seer, to_working
from polypscope.records import Camera, DepthMap, Frame, ProbabilityMap, SizeEstimate

__all__ = ["Eye", "Glimpse", "Memory", "Settings", "Stopwatch", "Told"]

# A frame that shows nothing new or nothing of the colon is not worth a look by the network.
_LEFT_OUT = frozenset({"frozen", "dark", "outside"})


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that decides about the results, apart from source, model and camera.

    every: analyse each so-many-th frame. working_px: short side of the working image.
    measure_every: measure polyps in each so-many-th analysed frame.
    """

    threshold: float = 0.5
    faint: float = 0.3
    every: int = 1
    working_px: int = 384
    measure_every: int = 3
    follow: FollowSettings = field(default_factory=FollowSettings)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for run.json and for the check that a resumed run is the same run."""
        return asdict(self)


class Stopwatch:
    """Adds up seconds by stage.

    >>> watch = Stopwatch()
    >>> with watch("see"):
    ...     pass
    >>> list(watch.seconds)
    ['see']
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._running: list[tuple[str, float]] = []

    def __call__(self, stage: str) -> Stopwatch:
        self._running.append((stage, time.perf_counter()))
        return self

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        stage, started = self._running.pop()
        self.seconds[stage] += time.perf_counter() - started


@dataclass(frozen=True, eq=False, slots=True)
class Glimpse:
    """What the networks say of a frame. probability: None if the frame was left out. due: whether polyps are measured
    in it. depth: None if there is nothing to measure, or nothing to measure it with."""

    frame: Frame
    small: NDArray[np.uint8]
    picture: Picture
    probability: ProbabilityMap | None
    due: bool
    depth: DepthMap | None


class Eye:
    """The half that sees: one frame in, its findings out. `state()` carries it over an interruption."""

    def __init__(
        self,
        working: Working,
        seer: Seer,
        settings: Settings,
        camera: Camera | None = None,
        ranger: Ranger | None = None,
        scale: ScaleCourse | None = None,
        watch: Stopwatch | None = None,
    ) -> None:
        # On images this small OpenCV's threads cost more than they save, and take the cores from the network.
        cv2.setNumThreads(1)
        self.working = working
        self.settings = settings
        self.watch = watch or Stopwatch()
        self.camera = None if camera is None else camera.resized(working.shape[1], working.shape[0])
        self._seer = seer
        self._ranger = ranger
        self._scale = scale
        self._picture = PictureReader(working.shape)
        self._count = 0

    def look(self, frame: Frame, small: NDArray[np.uint8] | None = None) -> Findings:
        """All findings of the next frame; `small` is the frame at working size, if that was already made."""
        return self.judge(self.glance(frame, small))

    def glance(self, frame: Frame, small: NDArray[np.uint8] | None = None) -> Glimpse:
        """The part of `look` that must go frame by frame."""
        watch = self.watch
        with watch("picture"):
            if small is None:
                small = to_working(frame.rgb, self.working)
            picture = self._picture.look(small)
        if picture.cut:
            self._seer.reset()
        due = self._count % self.settings.measure_every == 0
        self._count += 1
        if _LEFT_OUT.intersection(picture.flags):
            return Glimpse(frame, small, picture, None, due, None)
        with watch("see"):
            probability = self._seer.step(small)
        depth = None
        if due and self.camera is not None and self._ranger is not None and (probability.values >= CLEAR).any():
            with watch("range"):
                depth = self._ranger.depth(small, self.camera)
                if self._scale is not None:
                    depth = depth.scaled(self._scale.factor(frame.pts_s))
        return Glimpse(frame, small, picture, probability, due, depth)

    def judge(self, glimpse: Glimpse, watch: Stopwatch | None = None) -> Findings:
        """The rest of `look`; with a watch of its own it may run in another thread than `glance`."""
        watch = watch or self.watch
        picture, found = glimpse.picture, ()
        if glimpse.probability is not None:
            with watch("locate"):
                found = locate(
                    glimpse.probability,
                    glimpse.small,
                    picture.area,
                    threshold=self.settings.threshold,
                    faint=self.settings.faint,
                )
            if glimpse.due:
                with watch("measure"):
                    found = measured(found, self.camera, glimpse.depth)
        return Findings(
            glimpse.frame.index,
            round(glimpse.frame.pts_s, 6),
            picture.flags,
            picture.cut,
            picture.motion_xy,
            picture.sharpness,
            found,
        )

    def warm_up(self) -> None:
        """Go every way once with an empty picture, so that no real frame waits for a model or a module to load."""
        height, width = self.working.shape
        empty = np.zeros((height, width, 3), np.uint8)
        self._seer.step(empty)
        self._seer.reset()
        disc = np.zeros((height, width), np.float32)
        cv2.circle(disc, (width // 2, height // 2), min(height, width) // 8, 1.0, -1)
        found = locate(ProbabilityMap(disc), empty, disc >= 0)
        if self.camera is not None and self._ranger is not None:
            measured(found, self.camera, self._ranger.depth(empty, self.camera))

    def state(self) -> dict[str, NDArray[Any]]:
        """Named arrays that `restore` takes back."""
        arrays = {f"picture/{key}": value for key, value in self._picture.state().items()}
        arrays |= {f"seer/{key}": np.asarray(value) for key, value in self._seer.state().items()}
        arrays["count"] = np.array(self._count)
        return arrays

    def restore(self, state: dict[str, NDArray[Any]]) -> None:
        """Go on where another eye on the same source stood."""

        def part(name: str) -> dict[str, NDArray[Any]]:
            return {key.removeprefix(name): value for key, value in state.items() if key.startswith(name)}

        self._picture.restore(part("picture/"))
        self._seer.restore(part("seer/"))
        self._count = int(state["count"])


@dataclass(frozen=True, eq=False, slots=True)
class Told:
    """What is known right after a frame: the polyps to show, and the size of each as known so far."""

    findings: Findings
    shown: tuple[Shown, ...]
    sizes: dict[int, SizeEstimate | None]
    new_best: tuple[int, ...]  # polyps for which this frame is worth keeping as a picture


class Memory:
    """The half that remembers: findings in order, and out of them tracks, sizes and best frames."""

    def __init__(self, working: Working, settings: Settings) -> None:
        self.working = working
        self.follower = Follower(settings.follow)
        self.sizes = TrackSizes()
        self.best = BestFrames()
        self.frames = 0
        self.last: Findings | None = None

    def take(self, findings: Findings) -> Told:
        """Take one frame's findings in."""
        self.frames += 1
        self.last = findings
        shown = self.follower.step(findings)
        new_best = []
        for polyp in shown:
            if polyp.found is None:
                continue
            self.sizes.add(polyp.id, findings, polyp.found)
            if self.best.offer(polyp.id, findings, polyp.found, self.working):
                new_best.append(polyp.id)
        sizes = {polyp.id: self.sizes.of(polyp.id) for polyp in shown}
        return Told(findings, shown, sizes, tuple(new_best))

    def tracks(self) -> list[Tracked]:
        """Every polyp so far, by number."""
        return self.follower.tracks()
