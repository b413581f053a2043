"""One polyp, one track: associates detections over time, fires early, does not flicker, survives short occlusion.

Each candidate gathers evidence: log-odds of its scores, a loss for every frame without it or in doubt of it. An alarm
starts when the evidence is enough, so a clear polyp fires on its third frame and a doubtful one has to be seen longer;
once started, weak detections carry it (the idea of ByteTrack, Zhang et al., ECCV 2022). Positions are predicted with
the motion of the whole picture, which a moving scope needs more than a velocity per object. A polyp that went out of
sight stays in memory and gets its old identity back when it re-appears near where it went, or looks the same.

All times are seconds of the source, so frame rate and `--every` do not change the behaviour. `step` uses only what the
journal keeps: a replay ends in exactly the same state.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import linear_sum_assignment

from polypscope.pipeline.findings import Findings, Found
from polypscope.records import Box

__all__ = ["FollowSettings", "Follower", "Shown", "Tracked"]


@dataclass(frozen=True, slots=True)
class FollowSettings:
    """What decides when an alarm starts, lasts and returns.

    sure: score from which a detection speaks for a polyp and not against it. slope: log-odds for each unit of a score's
    own log-odds above that. These two and alarm_evidence were chosen with `recipes/follow.py`.
    alarm_evidence: log-odds that start an alarm. alarm_hits: at least so many detections. hold_s: a confirmed polyp is
    shown for so long without a detection. lost_s: after so long without one it counts as out of sight. memory_s: so
    long it can come back near its place under its old number; jump_s: so long anywhere, if it looks the same.
    miss_loss: log-odds lost by a candidate for each frame without it; faint_loss: by any track for a detection that
    stays below the threshold.
    """

    threshold: float = 0.5
    sure: float = 0.9
    slope: float = 1.0
    alarm_evidence: float = 3.0
    alarm_hits: int = 3
    hold_s: float = 0.2
    lost_s: float = 0.6
    jump_s: float = 1.0
    memory_s: float = 3.0
    miss_loss: float = 1.5
    faint_loss: float = 0.7
    evidence_limit: float = 9.0
    alike_near: float = 0.75
    alike_far: float = 0.9


@dataclass(slots=True)
class Tracked:
    """A polyp, or a candidate for one, that is being followed."""

    key: int
    box: Box
    appearance: np.ndarray
    evidence: float = 0.0
    hits: int = 0
    id: int | None = None  # given with the alarm
    first_index: int = 0
    first_s: float = 0.0
    alarm_index: int | None = None
    alarm_s: float | None = None
    seen_index: int = 0
    seen_s: float = 0.0
    velocity: tuple[float, float] = (0.0, 0.0)
    sure_place: bool = True  # False after a cut: where it was says nothing any more
    indices: list[int] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)

    @property
    def confirmed(self) -> bool:
        """Whether its alarm has started."""
        return self.id is not None


@dataclass(frozen=True, eq=False, slots=True)
class Shown:
    """A confirmed polyp in one frame: `found` is None while it is held through a missed detection."""

    id: int
    box: Box
    found: Found | None
    confidence: float
    fresh: bool  # its alarm starts in this frame


class Follower:
    """Feed it `Findings` in order; it answers with the polyps to show."""

    def __init__(self, settings: FollowSettings | None = None) -> None:
        self.settings = settings or FollowSettings()
        self.finished: list[Tracked] = []  # confirmed and out of memory
        self._active: list[Tracked] = []
        self._lost: list[Tracked] = []
        self._keys = 0
        self._ids = 0
        self._last_s: float | None = None

    def tracks(self) -> list[Tracked]:
        """Every polyp whose alarm has started, by number."""
        known = [t for t in (*self.finished, *self._lost, *self._active) if t.confirmed]
        return sorted(known, key=lambda t: t.id or 0)

    def step(self, findings: Findings) -> tuple[Shown, ...]:
        """Take one frame in and say which polyps to show in it."""
        now = findings.pts_s
        elapsed = 0.0 if self._last_s is None else max(0.0, now - self._last_s)
        self._last_s = now
        if findings.cut:
            self._forget_places()
        if "frozen" in findings.flags:
            # Nothing new was seen: what is shown stays, and no time passes for the polyps.
            for track in (*self._active, *self._lost):
                track.seen_s += elapsed
            return tuple(self._show(t, None, False) for t in self._active if t.confirmed)
        for track in self._active:
            track.box = _moved(track.box, findings.motion_xy, track.velocity)
        for track in self._lost:
            track.box = _moved(track.box, findings.motion_xy, (0.0, 0.0))
        matched = self._associate(findings)
        shown = []
        for track in list(self._active):
            found = matched.get(track.key)
            fresh = False
            if found is None:
                self._miss(track, now)
            else:
                fresh = self._hit(track, found, findings)
            if track.confirmed and track in self._active and now - track.seen_s <= self.settings.hold_s:
                shown.append(self._show(track, found, fresh))
        self._fade(now)
        return tuple(sorted(shown, key=lambda s: s.id))

    def _forget_places(self) -> None:
        for track in self._active:
            if track.confirmed:
                track.sure_place = False
                self._lost.append(track)
        self._active.clear()
        for track in self._lost:
            track.sure_place = False

    def _associate(self, findings: Findings) -> dict[int, Found]:
        """Match active tracks with detections; start candidates from strong detections that are left."""
        strong = [f for f in findings.found if f.score >= self.settings.threshold]
        weak = [f for f in findings.found if f.score < self.settings.threshold]
        matched: dict[int, Found] = {}
        left_strong = self._match(self._active, strong, matched)
        # Weak detections carry what is already followed, but nothing starts with one: the segmenter holds a whole frame
        # below the threshold when it doubts the frame, and of one and the same polyp it may doubt every other frame.
        self._match([t for t in self._active if t.key not in matched], weak, matched)
        for found in left_strong:
            if any(_is_fragment(found.box, t, matched.get(t.key)) for t in self._active):
                continue
            track = Tracked(self._keys, found.box, np.asarray(found.appearance, float))
            track.first_index, track.first_s = findings.index, findings.pts_s
            self._keys += 1
            self._active.append(track)
            matched[track.key] = found
        return matched

    def _match(self, tracks: list[Tracked], found: list[Found], matched: dict[int, Found]) -> list[Found]:
        if not tracks or not found:
            return found
        affinity = np.array([[_affinity(t, f) for f in found] for t in tracks])
        rows, columns = linear_sum_assignment(-affinity)
        taken = set()
        for row, column in zip(rows.tolist(), columns.tolist(), strict=True):
            if affinity[row, column] > 0:
                matched[tracks[row].key] = found[column]
                taken.add(column)
        return [f for n, f in enumerate(found) if n not in taken]

    def _hit(self, track: Tracked, found: Found, findings: Findings) -> bool:
        settings = self.settings
        old, new = track.box, found.box
        shift = (new.center_xy[0] - old.center_xy[0], new.center_xy[1] - old.center_xy[1])
        if track.hits:
            track.velocity = tuple(0.7 * v + 0.3 * s for v, s in zip(track.velocity, shift, strict=True))  # type: ignore[assignment]
        track.box = new
        if found.score < settings.threshold and not track.confirmed:
            # It stays where it is looked for, but only strong detections keep a candidate alive.
            track.evidence = max(track.evidence - settings.faint_loss, -settings.miss_loss)
            return False
        track.appearance = 0.9 * track.appearance + 0.1 * np.asarray(found.appearance, float)
        track.hits += 1
        track.seen_index, track.seen_s = findings.index, findings.pts_s
        track.indices.append(findings.index)
        track.scores.append(found.score)
        gain = _gain(found, old if track.hits > 1 else new, settings)
        if "blurred" in findings.flags:
            gain = min(gain, 0.5 * gain)
        track.evidence = min(max(track.evidence + gain, -settings.miss_loss), settings.evidence_limit)
        if track.confirmed and track.evidence <= 0:
            # Weak detections may carry a polyp through a moment; for longer they would lead it on to something else.
            self._active.remove(track)
            self._lost.append(track)
            return False
        if track.confirmed or track.hits < settings.alarm_hits or track.evidence < settings.alarm_evidence:
            return False
        self._alarm(track, findings)
        return True

    def _miss(self, track: Tracked, now: float) -> None:
        track.velocity = (0.6 * track.velocity[0], 0.6 * track.velocity[1])
        if track.confirmed:
            if now - track.seen_s > self.settings.lost_s:
                self._active.remove(track)
                self._lost.append(track)
            return
        track.evidence -= self.settings.miss_loss
        # Two frames without it end a candidate that has nothing to show for itself.
        if track.evidence < -1.5 * self.settings.miss_loss or now - track.seen_s > self.settings.lost_s:
            self._active.remove(track)

    def _alarm(self, track: Tracked, findings: Findings) -> None:
        """Start the alarm: as a polyp that came back, or under a new number."""
        back = self._recognise(track, findings.pts_s)
        if back is None:
            self._ids += 1
            track.id, track.alarm_index, track.alarm_s = self._ids, findings.index, findings.pts_s
            return
        (self._lost if back in self._lost else self._active).remove(back)
        track.id, track.alarm_index, track.alarm_s = back.id, back.alarm_index, back.alarm_s
        track.first_index, track.first_s = back.first_index, back.first_s
        track.indices, track.scores = back.indices + track.indices, back.scores + track.scores
        track.appearance = 0.5 * (track.appearance + back.appearance)

    def _recognise(self, track: Tracked, now: float) -> Tracked | None:
        best, best_value = None, 0.0
        settings = self.settings
        # A polyp that jumped (fast scope, frames left out) is still active, but was not seen since the candidate began.
        missing = [t for t in self._active if t.confirmed and t.seen_s < track.first_s]
        for old in (*self._lost, *missing):
            gap = track.first_s - old.seen_s
            # What went out of sight large does not come back small: that is the next polyp.
            if gap <= 0 or now - old.seen_s > settings.memory_s or _size_ratio(old.box, track.box) > 2:
                continue
            alike = _alike(old.appearance, track.appearance)
            near = _nearness(old.box, track.box) if old.sure_place else 0.0
            if near > 0 and alike >= settings.alike_near:
                value = 1.0 + near + alike
            elif gap <= settings.jump_s and alike >= settings.alike_far:
                # Looks alone count only for a moment: two polyps of one colon often have the same colour.
                value = alike
            else:
                continue
            if value > best_value:
                best, best_value = old, value
        return best

    def _fade(self, now: float) -> None:
        faded = [t for t in self._lost if now - t.seen_s > self.settings.memory_s]
        self.finished.extend(faded)
        self._lost = [t for t in self._lost if now - t.seen_s <= self.settings.memory_s]

    def _show(self, track: Tracked, found: Found | None, fresh: bool) -> Shown:
        assert track.id is not None
        return Shown(track.id, track.box, found, 1 / (1 + math.exp(-track.evidence)), fresh)


def _gain(found: Found, expected: Box, settings: FollowSettings) -> float:
    """Log-odds that a detection adds: less when it is not where it was expected, or is cut off by the picture's edge.

    False alarms come and go, change their shape and sit at the edge of the picture; polyps stay what they are.
    """
    if found.score < settings.threshold:
        return -settings.faint_loss
    gain = min(max(settings.slope * (_log_odds(found.score) - _log_odds(settings.sure)), -1.0), 2.5)
    if gain <= 0:
        return gain
    return gain * min(1.0, expected.iou(found.box) / 0.6) * (0.5 if found.truncated else 1.0)


def _log_odds(score: float) -> float:
    score = min(max(score, 0.02), 0.98)
    return math.log(score / (1 - score))


def _moved(box: Box, motion: tuple[float, float], velocity: tuple[float, float]) -> Box:
    # The velocity of an object already contains the motion of the picture; the larger of the two is the better guess.
    use = velocity if math.hypot(*velocity) > math.hypot(*motion) else motion
    return Box(box.x + use[0], box.y + use[1], box.width, box.height)


def _size_px(box: Box) -> float:
    return math.sqrt(box.area_px)


def _size_ratio(a: Box, b: Box) -> float:
    ratio = _size_px(a) / _size_px(b)
    return max(ratio, 1 / ratio)


def _affinity(track: Tracked, found: Found) -> float:
    """How well a detection continues a track: above 0 is possible, 2 is perfect."""
    box = found.box
    overlap = track.box.iou(box)
    reach = 0.6 * max(_size_px(track.box), _size_px(box)) + 12
    (x0, y0), (x1, y1) = track.box.center_xy, box.center_xy
    closeness = math.exp(-0.5 * (math.hypot(x1 - x0, y1 - y0) / reach) ** 2)
    # A candidate must stay where it is; a polyp that is known may jump a little further.
    if overlap < 0.02 and closeness < (0.25 if track.confirmed else 0.55):
        return 0.0
    if _size_ratio(track.box, box) > 4:
        return 0.0
    return overlap + 0.7 * closeness + 0.3 * _alike(track.appearance, np.asarray(found.appearance, float))


def _alike(a: np.ndarray, b: np.ndarray) -> float:
    """Bhattacharyya coefficient of two histograms, in [0, 1]."""
    total = math.sqrt(float(a.sum()) * float(b.sum()))
    return float(np.sqrt(a * b).sum() / total) if total > 0 else 0.0


def _nearness(a: Box, b: Box) -> float:
    reach = 1.2 * max(_size_px(a), _size_px(b)) + 15
    (x0, y0), (x1, y1) = a.center_xy, b.center_xy
    return max(0.0, 1 - math.hypot(x1 - x0, y1 - y0) / reach)


def _is_fragment(box: Box, track: Tracked, matched: Found | None) -> bool:
    """Whether a detection is a piece of what a track already covers in this frame."""
    if matched is None or matched.box is box:
        return False
    x, y = box.center_xy
    outer = matched.box
    grown = Box(outer.x - 0.15 * outer.width, outer.y - 0.15 * outer.height, 1.3 * outer.width, 1.3 * outer.height)
    return grown.contains(x, y) and box.area_px < outer.area_px
