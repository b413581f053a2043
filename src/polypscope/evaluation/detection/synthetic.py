"""Synthetic studies whose expected results are known in closed form.

A polyp is a disc on whole-pixel centres; a method tries each visible polyp with a given chance, misplaces its point by
Gaussian noise, adds a Poisson number of false alarms per frame and sleeps for a while after every appearance. Because
detections are truncated to pixels, the chance to land inside the disc is an exact sum of normal integrals over its
pixels, and every count and most time metrics follow (`expect`). Used to test the evaluator, and as the example study.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from polypscope.evaluation.detection.challenges import CHALLENGES, POLYP_ONLY, Labels
from polypscope.evaluation.detection.regions import FloatArray
from polypscope.evaluation.detection.tables import DetectionTable, TruthTable, TruthTableBuilder

__all__ = [
    "PAPER_VIDEOS",
    "Expectation",
    "SyntheticMethod",
    "SyntheticVideo",
    "example_methods",
    "expect",
    "simulate_labels",
    "simulate_method",
    "simulate_truth",
]


@dataclass(frozen=True)
class SyntheticVideo:
    """`visible`: half-open frame intervals in which the one polyp is in view (none: a negative video)."""

    name: str
    frames: int
    height_px: int
    width_px: int
    visible: tuple[tuple[int, int], ...] = ()
    radius_px: int = 40
    rate_hz: float = 30.0
    paris: str | None = None
    patient: str = ""

    @property
    def polyp_frames(self) -> int:
        return sum(b - a for a, b in self.visible)


@dataclass(frozen=True)
class SyntheticMethod:
    """`hit_rate`: chance to try a visible polyp in a frame; `noise_px`: SD of the point around its centre in x and y;
    `false_alarms`: mean number per frame, outside polyps; `delay`: silent frames at the start of every appearance.

    Scores of tries follow Beta(`skill`, 1), those of false alarms Beta(1, `skill`); without `scores` there are none.
    `concentration`: parameters of the Beta distribution of its maps' concentration ratio, if it hands in maps.
    """

    name: str
    hit_rate: float
    noise_px: float = 0.0
    false_alarms: float = 0.0
    delay: int = 0
    scores: bool = False
    skill: float = 2.0
    concentration: tuple[float, float] | None = None


@dataclass(frozen=True)
class Expectation:
    """Expected counts over the study, and expected time metrics of the polyps."""

    tp: float
    fp: float
    tn: float
    fn: float
    detection_rate: float
    coherence: float
    latency_frames: float


def _paper_videos() -> tuple[SyntheticVideo, ...]:
    """The size of the study of Bernal et al. (Table III): 18 videos, 17,574 frames, 4,313 with a polyp."""
    sd, wide, hd = (480, 712), (480, 856), (1080, 1920)
    rows = [
        (599, 0, sd), (625, 0, sd), (628, 0, sd), (607, 0, sd), (918, 693, wide), (1218, 1218, wide), (555, 445, sd),
        (446, 335, wide), (396, 290, hd), (1805, 548, hd), (452, 338, hd), (134, 134, hd), (312, 312, hd),
        (1815, 0, sd), (1795, 0, sd), (1627, 0, sd), (1807, 0, sd), (1835, 0, sd),
    ]  # fmt: skip
    sessile = {6, 10, 12, 13}
    out = []
    for number, (frames, polyp, (height, width)) in enumerate(rows, start=1):
        if polyp == 0:
            visible: tuple[tuple[int, int], ...] = ()
        elif polyp == frames:
            visible = ((0, frames),)
        else:  # the polyp leaves once and comes back
            start, gap = (frames - polyp) // 3, (frames - polyp) // 3
            visible = ((start, start + polyp // 2), (start + gap + polyp // 2, start + gap + polyp))
        paris = None if polyp == 0 else "0-Is" if number in sessile else "0-IIa"
        out.append(
            SyntheticVideo(
                name=f"video{number:02d}",
                frames=frames,
                height_px=height,
                width_px=width,
                visible=visible,
                radius_px=height // 9,
                paris=paris,
                patient=f"patient{number:02d}",
            )
        )
    return tuple(out)


PAPER_VIDEOS = _paper_videos()


def example_methods() -> tuple[SyntheticMethod, ...]:
    """Six made-up methods with different tempers; none stands for a team of the paper."""
    sharp, broad = (4.0, 4.5), (1.2, 5.5)
    return (
        SyntheticMethod("steady", 0.70, 18, false_alarms=0.01, delay=4, scores=True, skill=3.0, concentration=sharp),
        SyntheticMethod("eager", 0.85, 26, false_alarms=0.30, scores=True, skill=2.0, concentration=(1.3, 5.5)),
        SyntheticMethod("careful", 0.50, 12, false_alarms=0.002, delay=12),
        SyntheticMethod("sleepy", 0.60, 20, false_alarms=0.05, delay=60),
        SyntheticMethod("blurred", 0.80, 60, false_alarms=0.08, delay=2, concentration=broad),
        SyntheticMethod("noisy", 0.40, 30, false_alarms=1.20),
    )


@cache
def _disc(radius_px: int) -> NDArray[np.bool_]:
    y, x = np.mgrid[-radius_px : radius_px + 1, -radius_px : radius_px + 1]
    mask = x**2 + y**2 <= radius_px**2
    mask.flags.writeable = False
    return np.asarray(mask, dtype=np.bool_)


def _centres(video: SyntheticVideo) -> NDArray[np.int64]:
    """(frames, 2) whole-pixel x, y of the polyp: a slow walk that keeps the whole disc inside the image."""
    t = np.arange(video.frames) / video.rate_hz
    room_x, room_y = video.width_px / 2 - video.radius_px - 2, video.height_px / 2 - video.radius_px - 2
    x = video.width_px / 2 + 0.8 * room_x * np.sin(0.7 * t + 0.3)
    y = video.height_px / 2 + 0.8 * room_y * np.sin(1.1 * t + 1.1)
    return np.stack([x, y], axis=1).astype(np.int64)


def _shown(video: SyntheticVideo) -> NDArray[np.bool_]:
    shown = np.zeros(video.frames, dtype=np.bool_)
    for a, b in video.visible:
        shown[a:b] = True
    return shown


def simulate_truth(videos: Sequence[SyntheticVideo] = PAPER_VIDEOS) -> TruthTable:
    """The truth of the study: one disc-shaped polyp per positive video, with its identity."""
    builder = TruthTableBuilder(kind="videos", identities=True)
    for video in videos:
        builder.start_video(video.name, patient=video.patient)
        shown, centres = _shown(video), _centres(video)
        for f in range(video.frames):
            builder.add_frame(f, f / video.rate_hz, video.height_px, video.width_px)
            if shown[f]:
                x, y = (int(v) - video.radius_px for v in centres[f])
                builder.add_polyp(1, mask=_disc(video.radius_px), x0=x, y0=y, paris=video.paris)
    return builder.build()


def simulate_method(
    truth: TruthTable, videos: Sequence[SyntheticVideo], method: SyntheticMethod, *, seed: int = 0
) -> DetectionTable:
    """What the method says about the study; the same seed gives the same detections."""
    rng = np.random.default_rng([seed, *method.name.encode()])
    frames, xs, ys, scores = [], [], [], []
    offset = 0
    for video in videos:
        shown, centres = _shown(video), _centres(video)
        awake = shown.copy()
        for a, b in video.visible:
            awake[a : min(a + method.delay, b)] = False
        tries = np.flatnonzero(awake & (rng.random(video.frames) < method.hit_rate))
        # The disc is centred on the middle of its centre pixel, hence the half.
        points = centres[tries] + 0.5 + rng.normal(0.0, 1.0, (len(tries), 2)) * method.noise_px
        frames.append(offset + tries)
        xs.append(points[:, 0])
        ys.append(points[:, 1])
        scores.append(rng.beta(method.skill, 1.0, len(tries)))
        alarms = np.repeat(np.arange(video.frames), rng.poisson(method.false_alarms, video.frames))
        places = rng.random((len(alarms), 2)) * (video.width_px, video.height_px)
        while True:  # a false alarm inside the polyp would be a hit
            d = places.astype(np.int64) - centres[alarms]
            inside = shown[alarms] & ((d**2).sum(axis=1) <= video.radius_px**2)
            if not inside.any():
                break
            places[inside] = rng.random((int(inside.sum()), 2)) * (video.width_px, video.height_px)
        frames.append(offset + alarms)
        xs.append(places[:, 0])
        ys.append(places[:, 1])
        scores.append(rng.beta(1.0, method.skill, len(alarms)))
        offset += video.frames
    return DetectionTable.from_columns(
        truth,
        method.name,
        frame=np.concatenate(frames),
        x=np.concatenate(xs),
        y=np.concatenate(ys),
        score=np.concatenate(scores) if method.scores else None,
        concentration=(
            None
            if method.concentration is None
            else np.where(truth.has_polyp, rng.beta(*method.concentration, truth.frame_count), np.nan)
        ),
    )


def inside_chance(radius_px: int, noise_px: float) -> float:
    """Exact chance that a point with this noise, truncated to its pixel, lies in the disc.

    >>> inside_chance(5, 0.0), round(inside_chance(40, 20.0), 4), round(1 - float(np.exp(-(40.0**2) / 800)), 4)
    (1.0, 0.8645, 0.8647)
    """
    if noise_px == 0:
        return 1.0
    edges = ndtr((np.arange(-radius_px, radius_px + 2) - 0.5) / noise_px)
    share = np.diff(edges)
    return float((share[:, None] * share[None, :])[_disc(radius_px)].sum())


def expect(videos: Sequence[SyntheticVideo], method: SyntheticMethod, *, threshold: float = 0.0) -> Expectation:
    """Expected results of the method with detections kept from `threshold` on.

    Latency is the expectation over polyps that are found, as the paper's mean; exact for one appearance per polyp
    (NaN with more, where the pause between appearances enters); detection rate and coherence are means over polyps.
    """
    keep_true = 1.0 - threshold**method.skill if method.scores else 1.0
    keep_false = (1.0 - threshold) ** method.skill if method.scores else 1.0
    rate = method.false_alarms * keep_false
    tp = fp = tn = polyps = 0.0
    found, coherence, latency = [], [], []
    for video in videos:
        p = method.hit_rate * inside_chance(video.radius_px, method.noise_px) * keep_true
        miss = method.hit_rate * keep_true - p
        awake = [max(b - a - method.delay, 0) for a, b in video.visible]
        tp += p * sum(awake)
        fp += miss * sum(awake) + rate * video.frames
        tn += (video.frames - video.polyp_frames) * float(np.exp(-rate))
        polyps += video.polyp_frames
        if video.visible:
            found.append(1.0 - (1.0 - p) ** sum(awake))
            pairs = sum(b - a - 1 for a, b in video.visible)
            coherence.append(sum(max(n - 1, 0) for n in awake) * p**2 / pairs)
            latency.append(_mean_delay(p, awake[0], method.delay) if len(awake) == 1 else np.nan)
    return Expectation(
        tp=tp,
        fp=fp,
        tn=tn,
        fn=polyps - tp,
        detection_rate=float(np.mean(found)) if found else float("nan"),
        coherence=float(np.mean(coherence)) if coherence else float("nan"),
        latency_frames=float(np.average(latency, weights=found)) if found and sum(found) > 0 else float("nan"),
    )


def _mean_delay(p: float, length: int, delay: int) -> float:
    """Mean of `delay` plus a geometric waiting time, given that it ends within `length` frames."""
    if p <= 0 or length == 0:
        return float("nan")
    n = np.arange(length)
    chance = p * (1.0 - p) ** n
    return delay + float((n * chance).sum() / chance.sum())


def simulate_labels(truth: TruthTable, *, raters: int = 3, agreement: float = 0.9, seed: int = 0) -> Labels:
    """Made-up challenge labels in runs of frames; each rater sees what is there with chance `agreement`."""
    rng = np.random.default_rng([seed, 8])
    frames = truth.frame_count
    names = tuple(CHALLENGES)
    values: FloatArray = np.full((frames, raters, len(names)), np.nan)
    for c, challenge in enumerate(names):
        wave = np.sin(np.arange(frames) / rng.uniform(40, 160) + rng.uniform(0, 6)) > rng.uniform(-0.6, 0.6)
        said = np.where(rng.random((frames, raters)) < agreement, wave[:, None], ~wave[:, None]).astype(np.float64)
        if challenge in POLYP_ONLY:
            said[~truth.has_polyp] = np.nan
        values[:, :, c] = said
    return Labels(raters=tuple(f"rater{r + 1}" for r in range(raters)), challenges=names, values=values)
