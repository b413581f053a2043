"""Simulated procedures with their truth, for tuning the follower and for judging it; costly steps are kept on disk.

Three steps, each from the one before: `rendered` (pictures and labels; depends on the simulator alone), `seen` (what
the eye finds in each frame; depends on the weights and the caliper's rules), `judged` (tracks against the truth;
depends on `FollowSettings` and takes a second). So new weights need no rendering and other settings of the follower
need no network.

Three ranges of seeds are kept apart: training draws from other ones altogether, those of `TUNING` are for choosing
settings, `TEST` for the figures that are published and for nothing else. What was judged on once moves to `TUNING`, or,
like 920,000, 930,000 and 940,000 on, is left.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from polypscope.geometry import calibrated
from polypscope.io.paths import atomic_path
from polypscope.pipeline.against_truth import AgainstTruth
from polypscope.pipeline.engine import Eye, Memory, Settings, Told
from polypscope.pipeline.findings import Findings, Working
from polypscope.pipeline.models import Models
from polypscope.records import Camera, Frame, GroundTruth, TruePolyp
from polypscope.simulator import sequence

__all__ = [
    "CLEAR_SHARE",
    "LEAST_FRAMES",
    "TEST",
    "TUNING",
    "VISIBLE_SHARE",
    "Judged",
    "Procedure",
    "judged",
    "procedures",
    "rendered",
    "seen",
]

TUNING, TEST = (900_000, 910_000), 980_000
FPS, SIDE_PX = 25, 384
LEAST_FRAMES = 10  # a polyp that shows for less is nobody's miss
VISIBLE_SHARE, CLEAR_SHARE = 0.001, 0.005  # of the picture's pixels: 12 x 12 and 27 x 27 of 384 x 384


@dataclass(frozen=True)
class Procedure:
    """One passage of a scope through a colon; every field decides about its pictures."""

    seed: int
    index: int
    style: Literal["clinical", "clean"]
    frames: int = 200
    side_px: int = SIDE_PX

    @property
    def name(self) -> str:
        """A name for files."""
        return f"{self.seed}-{self.index}-{self.style}-{self.frames}x{self.side_px}"


def procedures(first_seed: int, count: int, style: Literal["clinical", "clean"], frames: int = 200) -> list[Procedure]:
    """`count` procedures of one style, each in a colon of its own; the styles share no colon.

    >>> [p.seed for p in procedures(TEST, 2, "clinical")], procedures(TEST, 1, "clean")[0].seed
    ([980000, 980001], 985000)
    """
    offset = 0 if style == "clinical" else 5_000
    return [Procedure(first_seed + offset + n, 0, style, frames) for n in range(count)]


def rendered(cache: Path, procedure: Procedure) -> Path:
    """Render a procedure, unless that was done: pictures, labels, true sizes and the camera in one file.

    New polyps in every procedure, one in four has none; fields of view from 80 to 130 degrees.
    """
    path = cache / "rendered" / f"{procedure.name}.npz"
    if path.exists():
        return path
    clip = sequence(
        seed=procedure.seed, index=procedure.index, frames=procedure.frames, style=procedure.style, polyps="sampled",
        negatives=0.25, fov_deg=(80.0, 130.0), lens="fisheye", width=procedure.side_px, height=procedure.side_px,
    )  # fmt: skip
    pictures, labels = [], []
    for item in clip:
        jpeg = item.jpeg or cv2.imencode(".png", np.ascontiguousarray(item.frame.rgb[..., ::-1]))[1].tobytes()
        pictures.append(np.frombuffer(jpeg, np.uint8))
        labels.append(item.truth.instances.astype(np.uint8))
    facts = {
        "polyps": [(p.id, p.model.size_mm, p.model.paris) for p in clip.polyps],
        "camera": clip.camera.to_json(),
    }
    _save(
        path,
        pictures=np.concatenate(pictures),
        ends=np.cumsum([len(p) for p in pictures]),
        labels=np.stack(labels),
        facts=np.array(json.dumps(facts)),
    )
    return path


def _save(path: Path, **arrays: NDArray[Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(path) as temporary, temporary.open("wb") as stream:
        np.savez_compressed(stream, **arrays)


def seen(cache: Path, procedure: Procedure, models: Models) -> Path:
    """Let the eye look at a procedure, unless these weights already did: the journal, labels and facts in one file."""
    settings = Settings(threshold=models.threshold)
    looks = {k: v for k, v in settings.as_dict().items() if k != "follow"}
    rules = [calibrated.PREDICTED_FACTOR, calibrated.PREDICTED_FRAME.quantile]  # sizes are measured here, too
    key = hashlib.sha256(json.dumps([models.identity, looks, rules], sort_keys=True).encode()).hexdigest()[:12]
    path = cache / f"seen-{key}" / f"{procedure.name}.npz"
    if path.exists():
        return path
    with np.load(rendered(cache, procedure)) as data:
        pictures, ends, labels, facts = (data[name] for name in ("pictures", "ends", "labels", "facts"))
    camera = Camera.from_json(json.loads(str(facts))["camera"])
    working = Working.of(labels.shape[1:], settings.working_px)
    models.seer.reset()
    eye = Eye(working, models.seer, settings, camera, models.ranger)
    lines = []
    for index, (start, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
        rgb = cv2.imdecode(pictures[start:end], cv2.IMREAD_COLOR)[..., ::-1]
        lines.append(eye.look(Frame(index, index / FPS, np.ascontiguousarray(rgb))).to_line())
    _save(path, labels=labels, facts=facts, lines=np.array("\n".join(lines)))
    return path


@dataclass(frozen=True)
class Judged:
    """One procedure: its length, false tracks, and a row for each polyp that could be seen.

    `empty` counts its frames in which no pixel is a polyp's, `alarmed` those of them with a detection by the segmenter.

    Rows: `true_mm`, `paris`, `visible` and `hit` frames, `tracks` that followed it, `latency` in frames from the first
    frame in which it covers `VISIBLE_SHARE` of the picture (None: missed), `was_clear` and `clear_latency` the same for
    `CLEAR_SHARE`, `long_mm` and `interval_mm` of its longest track.
    """

    name: str
    seconds: float
    negative: bool
    false_tracks: int
    polyps: tuple[dict[str, Any], ...]
    empty: int
    alarmed: int


def judged(path: Path, settings: Sequence[Settings], *, sizes: bool = True) -> list[Judged]:
    """Follow what was seen of one procedure and compare with its truth, once for each of the settings.

    Without `sizes` it takes a fraction of the time, and the rows have no sizes.
    """
    with np.load(path) as data:
        labels, lines, facts = data["labels"], str(data["lines"]).split("\n"), json.loads(str(data["facts"]))
    known = {n: TruePolyp(n, size_mm=size, paris=paris) for n, size, paris in facts["polyps"]}
    working = Working.of(labels.shape[1:], settings[0].working_px)
    findings = [Findings.from_line(line, working.shape) for line in lines]
    truths = []
    for index, picture in enumerate(labels):
        visible = tuple(known[n] for n in np.unique(picture).tolist() if n)
        truths.append(GroundTruth(index, index / FPS, picture.shape, visible, picture.astype(np.uint16)))
    return [_judged(path.stem, findings, truths, working, each, sizes) for each in settings]


def _judged(
    name: str, findings: list[Findings], truths: list[GroundTruth], working: Working, settings: Settings, sizes: bool
) -> Judged:
    memory = Memory(working, settings)
    visible, clear = AgainstTruth(working, VISIBLE_SHARE), AgainstTruth(working, CLEAR_SHARE)
    for frame, truth in zip(findings, truths, strict=True):
        told = memory.take(frame) if sizes else Told(frame, memory.follower.step(frame), {}, ())
        for against in (visible, clear):
            against.expect(truth)
            against.add(told)
    length = {track.id: len(track.indices) for track in memory.tracks()}
    clear_latency = {outcome.polyp.id: outcome.latency_frames for outcome in clear.outcomes()}
    rows = []
    for outcome in visible.outcomes():
        if outcome.visible_frames < LEAST_FRAMES:
            continue
        main = max(outcome.tracks, key=lambda n: length[n], default=None)
        size = memory.sizes.final(main) if sizes and main is not None else None
        rows.append(
            {
                "true_mm": outcome.polyp.size_mm,
                "paris": outcome.polyp.paris,
                "visible": outcome.visible_frames,
                "hit": outcome.hit_frames,
                "tracks": len(outcome.tracks),
                "latency": outcome.latency_frames,
                "was_clear": outcome.polyp.id in clear_latency,
                "clear_latency": clear_latency.get(outcome.polyp.id),
                "long_mm": None if size is None else size.long_mm,
                "interval_mm": None if size is None else size.interval_mm,
            }
        )
    negative = not any(truth.polyps for truth in truths)
    empty = [frame for frame, truth in zip(findings, truths, strict=True) if not truth.polyps]
    alarmed = sum(any(found.score >= settings.threshold for found in frame.found) for frame in empty)
    false_tracks = len(visible.false_tracks())
    return Judged(name, len(truths) / FPS, negative, false_tracks, tuple(rows), len(empty), alarmed)
