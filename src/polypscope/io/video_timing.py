"""Which frame is it, and when: indices and time stamps of decoded frames, as FFmpeg counts them, losses included."""

from __future__ import annotations

import heapq

__all__ = ["BestEffortClock", "LossCounter"]


class BestEffortClock:
    """FFmpeg's rule for a frame's time stamp (`guess_correct_pts` in libavcodec): the presentation stamp, unless the
    file has none or its stamps run backwards more often than the decoding stamps do."""

    def __init__(self) -> None:
        self._last_pts = self._last_dts = -(1 << 63)
        self._faulty_pts = self._faulty_dts = 0

    def stamp(self, pts: int | None, dts: int | None, *, sound: bool = True) -> int | None:
        """The time stamp of the next frame in units of its time base, or None if the file gives none.

        Behind a fault (`sound` is False) a stamp that runs backwards says nothing about the others.
        """
        if dts is not None:
            self._faulty_dts += sound and dts <= self._last_dts
            self._last_dts = dts
        elif pts is not None:
            self._last_dts = pts
        if pts is not None:
            self._faulty_pts += sound and pts <= self._last_pts
            self._last_pts = pts
        elif dts is not None:
            self._last_pts = dts
        trusted = self._faulty_pts <= self._faulty_dts or dts is None
        return pts if trusted and pts is not None else dts


class LossCounter:
    """Finds frames that went into the decoder and never came out.

    Decoders give frames in order of presentation. So when a frame comes out, every earlier stamp that went in and did
    not come out is lost. That alone is no proof: the second field of an interlaced picture and pictures that are only
    meant as reference never come out of a healthy file either. Losses count only after the first fault, and, in files
    with such silent packets, only those that raised an error. Frames whose packets were destroyed leave nothing but a
    gap between time stamps; it is counted after the first fault in files whose rate was constant until then.
    """

    def __init__(self) -> None:
        self._waiting: list[int] = []
        self._failed: list[int] = []
        self._unstamped_failures = 0
        self._trouble = False
        self._silent = False
        self._rhythm = _Rhythm()

    @property
    def trouble(self) -> bool:
        """Whether a fault has been seen."""
        return self._trouble

    @property
    def short(self) -> bool:
        """Whether frames are missing at the end in a file where every packet gives a frame."""
        return bool(self._waiting) and not self._silent

    def sent(self, pts: int | None) -> None:
        """A packet goes into the decoder."""
        if pts is not None:
            heapq.heappush(self._waiting, pts)

    def failed(self, pts: int | None) -> None:
        """The decoder refused a packet."""
        self._trouble = True
        if pts is None:
            self._unstamped_failures += 1
        else:
            heapq.heappush(self._failed, pts)

    def disturbed(self) -> None:
        """A fault that belongs to no packet: a flagged frame, or a place where the file cannot be read."""
        self._trouble = True

    def received(self, pts: int | None) -> int:
        """A frame comes out; returns how many were lost since the one before."""
        lost, self._unstamped_failures = self._unstamped_failures, 0
        if pts is None:
            self._rhythm.pause()
            return lost
        missing = 0
        while self._waiting and self._waiting[0] < pts:
            heapq.heappop(self._waiting)
            missing += 1
        if self._waiting and self._waiting[0] == pts:
            heapq.heappop(self._waiting)
        steps = self._rhythm.steps_to(pts, learn=not self._trouble)
        return max(lost + self._judge(missing, pts), steps - 1 if self._trouble else 0)

    def finished(self) -> int:
        """The stream is over; returns how many were lost at its end."""
        lost, self._unstamped_failures = self._unstamped_failures, 0
        missing = len(self._waiting)
        self._waiting.clear()
        return lost + self._judge(missing, None)

    def _judge(self, missing: int, before: int | None) -> int:
        failed = 0
        while self._failed and (before is None or self._failed[0] < before):
            heapq.heappop(self._failed)
            failed += 1
        if not self._trouble:
            self._silent = self._silent or missing > 0
            return 0
        return min(failed, missing) if self._silent else missing


class _Rhythm:
    """The constant step between time stamps, if there is one; a tick of rounding either way is no change."""

    def __init__(self) -> None:
        self._last: int | None = None
        self._shortest: int | None = None
        self._longest = 0
        self._sum = self._count = 0

    def pause(self) -> None:
        """A frame without stamp came out: the next distance says nothing."""
        self._last = None

    def steps_to(self, stamp: int, *, learn: bool) -> int:
        """How many steps lie between the last stamp and this one: 1 where nothing is missing or nothing is known."""
        last, self._last = self._last, stamp
        if last is None:
            return 1
        step = stamp - last
        if learn:
            self._shortest = step if self._shortest is None else min(step, self._shortest)
            self._longest = max(step, self._longest)
            self._sum, self._count = self._sum + step, self._count + 1
            return 1
        if self._count < 2 or self._shortest is None or self._shortest <= 0 or self._longest - self._shortest > 2:
            return 1
        return max(round(step * self._count / self._sum), 1)
