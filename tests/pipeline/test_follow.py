"""The follower on detection streams with a known story: when it fires, what it bridges, what it keeps apart."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scenes import found_at, stream

from polypscope.pipeline.findings import Findings
from polypscope.pipeline.follow import Follower


def _run(findings) -> tuple[Follower, list[list[int]]]:
    follower = Follower()
    shown = [[s.id for s in follower.step(f)] for f in findings]
    return follower, shown


@pytest.mark.parametrize(
    ("score", "least", "most"),
    [(0.97, 2, 3), (0.95, 3, 6)],
    ids=["clear", "likely"],
)
def test_fires_the_sooner_the_surer(score: float, least: int, most: int) -> None:
    _, shown = _run(stream(*[[found_at(100 + n, 80, score=score)] for n in range(20)]))
    first = next(n for n, ids in enumerate(shown) if ids)
    assert least <= first <= most
    assert all(ids == [1] for ids in shown[first:])


def test_single_frame_false_alarm_is_not_shown() -> None:
    _, shown = _run(stream(None, [found_at(100, 80, score=0.99)], None, None, [found_at(250, 200)], None))
    assert shown == [[]] * 6


def test_what_the_segmenter_is_never_sure_of_is_never_shown() -> None:
    _, shown = _run(stream(*[[found_at(100, 80, score=0.8)] for _ in range(60)]))
    assert shown == [[]] * 60


def test_a_candidate_that_becomes_sure_fires_soon() -> None:
    doubtful = [[found_at(100, 80, score=0.7)] for _ in range(30)]
    _, shown = _run(stream(*doubtful, *[[found_at(100, 80)] for _ in range(6)]))
    assert next(n for n, ids in enumerate(shown) if ids) <= 30 + 3


def test_scattered_detections_make_no_track() -> None:
    places = [(40, 40), (280, 200), (60, 210), (250, 30), (150, 120), (30, 200), (290, 60)]
    follower, _ = _run(stream(*[[found_at(x, y, size=16)] for x, y in places]))
    assert follower.tracks() == []


def test_weak_detections_carry_an_alarm_but_do_not_start_one() -> None:
    weak = [[found_at(100, 80, score=0.35)] for _ in range(20)]
    assert _run(stream(*weak))[0].tracks() == []
    strong = [[found_at(100, 80)] for _ in range(3)]
    _, shown = _run(stream(*strong, *weak))
    assert all(ids == [1] for ids in shown[2:8])
    assert shown[-1] == []  # but not for ever


def test_a_candidate_outlives_frames_that_the_segmenter_doubts() -> None:
    frames = [[found_at(100 + n, 80, score=0.35 if n % 2 else 0.97)] for n in range(30)]
    _, shown = _run(stream(*frames))
    first = next(n for n, ids in enumerate(shown) if ids)
    assert first <= 10
    assert all(ids == [1] for ids in shown[first:])


def test_a_candidate_does_not_live_on_doubt_alone() -> None:
    frames = [found_at(100, 80)] * 2 + [found_at(100, 80, score=0.4)] * 30 + [found_at(100, 80)]
    assert _run(stream(*[[f] for f in frames]))[0].tracks() == []


def test_no_flicker_through_missed_frames() -> None:
    frames = [[found_at(100 + n, 80)] if n % 4 else None for n in range(40)]
    frames[0] = [found_at(100, 80)]
    _, shown = _run(stream(*frames))
    assert all(ids == [1] for ids in shown[2:])


@pytest.mark.parametrize("gap", [3, 10, 25, 60])
def test_same_number_after_occlusion(gap: int) -> None:
    before = [[found_at(100, 80)] for _ in range(10)]
    after = [[found_at(110, 90)] for _ in range(10)]
    follower, shown = _run(stream(*before, *[None] * gap, *after))
    assert [t.id for t in follower.tracks()] == [1]
    assert shown[-1] == [1]
    assert len(follower.tracks()[0].indices) == 20


def test_different_looking_polyp_elsewhere_is_another() -> None:
    before = [[found_at(60, 60, hue=3)] for _ in range(10)]
    after = [[found_at(260, 190, hue=20)] for _ in range(10)]
    follower, _ = _run(stream(*before, *[None] * 30, *after))
    assert [t.id for t in follower.tracks()] == [1, 2]


def test_what_went_large_does_not_come_back_small() -> None:
    before = [[found_at(100, 80, size=90)] for _ in range(10)]
    after = [[found_at(110, 90, size=20)] for _ in range(10)]
    follower, _ = _run(stream(*before, *[None] * 10, *after))
    assert [t.id for t in follower.tracks()] == [1, 2]


def test_after_a_cut_only_looks_count() -> None:
    before = [[found_at(100, 80, hue=3)] for _ in range(10)]
    same = [[found_at(200, 180, hue=3)] for _ in range(5)]
    other = [[found_at(100, 80, hue=20)] for _ in range(5)]
    assert [t.id for t in _run(stream(*before, *same, cut_at=10))[0].tracks()] == [1]
    assert [t.id for t in _run(stream(*before, *other, cut_at=10))[0].tracks()] == [1, 2]


def test_two_polyps_that_pass_keep_their_numbers() -> None:
    frames = [[found_at(60 + 4 * n, 80, hue=3), found_at(260 - 4 * n, 140, hue=20)] for n in range(45)]
    follower, shown = _run(stream(*frames))
    first, second = follower.tracks()
    assert len(first.indices) == len(second.indices) == 45
    assert all(ids == [1, 2] for ids in shown[2:])


def test_frozen_frames_hold_what_was_shown() -> None:
    frames = [[found_at(100, 80)] for _ in range(5)] + [None] * 100 + [[found_at(102, 82)] for _ in range(5)]
    flags = dict.fromkeys(range(5, 105), ("frozen",))
    follower, shown = _run(stream(*frames, flags=flags))
    assert all(ids == [1] for ids in shown[2:])
    assert len(follower.tracks()[0].indices) == 10


def test_fragments_of_a_polyp_do_not_become_polyps() -> None:
    frames = [[found_at(100, 80, size=60), found_at(118, 92, size=14, score=0.8)] for _ in range(20)]
    assert [t.id for t in _run(stream(*frames))[0].tracks()] == [1]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.tuples(st.integers(20, 300), st.integers(20, 220), st.floats(0, 1)), max_size=3)))
def test_replay_from_the_journal_decides_the_same(frames) -> None:
    findings = list(stream(*[[found_at(x, y, 20, round(s, 4)) for x, y, s in found] for found in frames]))
    again = [Findings.from_line(f.to_line(), (240, 320)) for f in findings]
    one, two = _run(findings), _run(again)
    assert one[1] == two[1]
    assert [(t.id, t.indices, t.evidence) for t in one[0].tracks()] == [
        (t.id, t.indices, t.evidence) for t in two[0].tracks()
    ]


def test_what_jumps_about_or_sits_at_the_edge_has_to_be_seen_longer() -> None:
    def first_shown(frames) -> int:
        return next(n for n, ids in enumerate(_run(stream(*frames))[1]) if ids)

    steady = first_shown([[found_at(100, 80)] for _ in range(30)])
    restless = first_shown([[found_at(100 + 18 * (n % 2), 80)] for n in range(30)])
    cut_off = first_shown([[replace(found_at(100, 80), truncated=True)] for _ in range(30)])
    assert steady < restless
    assert steady < cut_off


def test_alike_polyps_one_after_the_other_are_two() -> None:
    before = [[found_at(60, 60)] for _ in range(10)]
    after = [[found_at(260, 190)] for _ in range(10)]
    assert [t.id for t in _run(stream(*before, *[None] * 40, *after))[0].tracks()] == [1, 2]
