"""The report of an analysed video: what stands in it, that it stays small, and that nothing given can run as markup."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest

from polypscope.pipeline.results import BestFrame, PolypResult, Results
from polypscope.records import SizeEstimate
from polypscope.report.analysis import TrueMatch, render, write_analysis
from polypscope.report.timeline import _merge

_OUTLINE = tuple((200 + 40 * np.cos(t), 150 + 25 * np.sin(t)) for t in np.linspace(0, 6.2, 40))


def _jpeg(kilobytes: int) -> bytes:
    noise = np.random.default_rng(0).integers(0, 255, (240, 320, 3), np.uint8)
    data = cv2.imencode(".jpg", noise, [cv2.IMWRITE_JPEG_QUALITY, 60])[1].tobytes()
    return data + bytes(max(0, kilobytes * 1000 - len(data)))


def _polyp(n: int, size: SizeEstimate | None, jpeg: bytes, pictures: int = 3) -> PolypResult:
    best = tuple(
        BestFrame(n * 100 + k, n * 4.0 + k, 0.9, k == 2, 31.0, size, jpeg, (240, 320), (_OUTLINE,))
        for k in range(pictures)
    )
    seen = ((n * 4.0, n * 4.0 + 2), (n * 4.0 + 3, n * 4.0 + 3.5))
    return PolypResult(
        n, n * 100, n * 4.0, n * 100 + 80, n * 4.0 + 3.5, n * 100 + 3, n * 4.0 + 0.12, 60, 0.93, size,
        12 if size else 0, "" if size else "no camera was given", seen, best,
    )  # fmt: skip


def _results(polyps: tuple[PolypResult, ...], **changes) -> Results:
    values = {
        "source": "case.mp4",
        "shape": (480, 640),
        "fps": 25.0,
        "frames": 1500,
        "duration_s": 60.0,
        "polyps": polyps,
        "flag_spans": {"frozen": ((10.0, 12.0),), "blurred": ((20.0, 21.0),)},
        "cuts_s": (30.0,),
        "flag_counts": {"frozen": 50, "blurred": 25},
    }
    return Results(**(values | changes))


_SIZE = SizeEstimate(6.24, 5.1, (5.3, 7.4), 0.9, "caliper-track", ("few_frames",))


def test_what_a_reader_looks_for_is_there() -> None:
    polyps = (_polyp(1, _SIZE, _jpeg(1)), _polyp(2, None, _jpeg(1)))
    text = render(_results(polyps), settings={"threshold": 0.5}, notes=["3 damaged frames skipped: 7–9"])
    for words in (
        "2 polyps were found",
        "6.2 mm",
        "90 % interval 5.3–7.4 mm",
        "small, 5–10 mm",
        "few frames",
        "not measured",
        "no camera was given",
        "--camera camera.json",
        "frozen image",
        "3.3",  # 50 of 1500 frames, in percent
        "1 scene cut at 0:30.0",
        "3 damaged frames skipped",
        "Limits of use",
        "not a medical device",
        'class="ruler"',
    ):
        assert words in text, words
    assert text.count('<article class="polyp"') == 2
    assert text.count("<svg viewBox") == 6
    assert text.count('class="ruler"') == 3  # only where there are millimetres to divide it by


def test_a_polyp_that_no_frame_shows_whole_has_a_lower_bound() -> None:
    part = replace(_SIZE, flags=("truncated",))
    text = render(_results((_polyp(1, part, _jpeg(1)), _polyp(2, _SIZE, _jpeg(1)))), settings={})
    assert '<p class="size">at least 6.2 mm' in text
    assert text.count("at least 6.2 mm") >= 2  # on the timeline, too
    assert "no frame shows the whole of it" in text
    assert text.count("% interval") == 1  # of the other polyp
    assert "Never seen whole" in text
    assert "0 · 1 · 0" in text  # what is known in part belongs to no size class
    rows = [_polyp(1, size, _jpeg(1)).row() for size in (part, _SIZE)]
    assert [(row["low_mm"], row["high_mm"], row["bin_mm"]) for row in rows] == [(5.3, None, None), (5.3, 7.4, "5-10")]
    assert "Never seen whole" not in render(_results((_polyp(2, _SIZE, _jpeg(1)),)), settings={})


def test_truth_stands_beside_the_estimate() -> None:
    truth = [
        TrueMatch(1, 7.0, "0-Is", 4.0, 8.0, ((4.0, 8.0),), (1,), 3),
        TrueMatch(2, 12.0, "0-Ip", 30.0, 31.0, ((30.0, 31.0),), (), None),
    ]
    text = render(_results((_polyp(1, _SIZE, _jpeg(1)), _polyp(2, None, _jpeg(1)))), settings={}, truth=truth)
    assert "1 of 2" in text
    assert "missed" in text
    assert "true size 7.0 mm" in text
    assert "False alarms: polyp 2" in text


def test_nothing_given_runs_as_markup() -> None:
    hostile = '<script>alert("x")</script>'
    text = render(_results((_polyp(1, None, _jpeg(1)),), source=hostile), settings={hostile: hostile}, notes=[hostile])
    assert hostile not in text
    assert "&lt;script&gt;" in text


def test_no_polyp_is_said_plainly() -> None:
    text = render(_results(()), settings={})
    assert "No polyp was found" in text
    assert "No alarm was raised" in text


@pytest.mark.parametrize(("polyps", "kilobytes"), [(300, 90), (20, 40)])
def test_page_stays_below_twenty_megabytes(polyps: int, kilobytes: int, tmp_path: Path) -> None:
    jpeg = _jpeg(kilobytes)
    results = _results(tuple(_polyp(n, _SIZE, jpeg) for n in range(1, polyps + 1)), duration_s=1800.0)
    path = write_analysis(tmp_path / "report.html", results, settings={})
    assert path.stat().st_size < 20_000_000
    text = path.read_text(encoding="utf-8")
    shown = text.count('<figure class="shot"')
    assert shown == 60 if polyps == 20 else 100 < shown < 300
    assert not re.search(r'(src|href)="(https?:)?//', text)


def test_a_long_video_makes_no_more_boxes_than_a_short_one() -> None:
    spans = [(t * 0.08, t * 0.08 + 0.04) for t in range(20_000)]
    assert len(_merge(spans, 1600.0)) < 900
