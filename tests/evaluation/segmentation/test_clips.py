"""Averaging: the toolbox's reference outputs, an obvious version with all curves in memory, and its rules."""

import json
from pathlib import Path

import cv2
import numpy as np
import pytest

from polypscope.evaluation.bootstrap import bootstrap_weights
from polypscope.evaluation.segmentation import (
    POLYPSENSE3D,
    STILLS,
    SUNSEG,
    FramePair,
    PairedClip,
    Spec,
    evaluate,
    score_clip,
    score_frame,
)
from polypscope.evaluation.segmentation.clips import join, pooled_counts, summarise
from polypscope.evaluation.segmentation.compare import compare, interval
from polypscope.evaluation.segmentation.order import case_of, sort_frames
from polypscope.evaluation.segmentation.spec import CURVES, PAPER_SIX, POOLED, TOOLBOX
from polypscope.records.errors import InputError


def make_pair(seed: int, quality: float = 0.8) -> FramePair:
    rng = np.random.default_rng(seed)
    truth, prediction = np.zeros((24, 30), np.uint8), np.zeros((24, 30), np.uint8)
    y, x = rng.integers(8, 16), rng.integers(8, 20)
    cv2.circle(truth, (int(x), int(y)), 5, 255, -1)
    cv2.circle(prediction, (int(x + 6 * (1 - quality)), int(y)), 5, 230, -1)
    noise = rng.integers(0, 20, truth.shape)
    return FramePair(f"{seed}", truth, np.clip(cv2.blur(prediction, (3, 3)) + noise, 0, 255).astype(np.uint8))


def make_clip(name: str, frames: int, seed: int = 0, quality: float = 0.8, **options: object) -> PairedClip:
    return PairedClip(name, [make_pair(seed + i, quality) for i in range(frames)], **options)  # type: ignore[arg-type]


CLIPS = [make_clip("case1_1", 5, 0), make_clip("case1_2", 9, 50), make_clip("case2", 4, 90)]


def slow_summary(clips: list[PairedClip], spec: Spec) -> dict[str, float]:
    """All curves of all frames in memory, averaged as the words of the protocol say."""
    means = []
    for clip in clips:
        pairs = list(clip.pairs)[spec.drop_first : len(clip.pairs) - spec.drop_last]
        scores = [score_frame(p.truth, p.prediction, spec) for p in pairs]  # type: ignore[attr-defined]
        means.append([np.array([s.curves.array for s in scores]), scores])
    if spec.average == "clips":
        curves = np.mean([m[0].mean(axis=0) for m in means], axis=0)
        scalar = lambda name: np.mean([np.mean([s.value(name) for s in m[1]]) for m in means])
    else:
        curves = np.concatenate([m[0] for m in means]).mean(axis=0)
        scalar = lambda name: np.mean([s.value(name) for m in means for s in m[1]])
    out = {
        name: float(scalar(name)) for name in ("Smeasure", "wFmeasure", "MAE", "adpEm", "adpFm", "mDice", "boundaryF")
    }
    for name, curve in zip(CURVES, curves, strict=True):
        name = {"E": "Em", "F": "Fm"}.get(name, name)
        out |= {f"mean{name}": float(curve.mean()), f"max{name}": float(curve.max())}
    return out


@pytest.mark.parametrize("spec", [SUNSEG, STILLS, POLYPSENSE3D])
def test_averages_equal_the_obvious_version(spec: Spec) -> None:
    values = evaluate(CLIPS, spec).summary().values
    for name, want in slow_summary(CLIPS, spec).items():
        assert values[name] == pytest.approx(want, abs=1e-12), name


def test_a_clip_counts_once_whatever_its_length() -> None:
    result = evaluate(CLIPS)
    each = [summarise([clip], SUNSEG).values["Smeasure"] for clip in result.clips]
    assert result.summary().values["Smeasure"] == pytest.approx(np.mean(each))
    assert [clip.frames for clip in result.clips] == [3, 7, 2]


def test_the_maximum_is_taken_after_averaging_unless_the_spec_says_otherwise() -> None:
    after = evaluate(CLIPS).summary().values["maxDice"]
    before = evaluate(CLIPS, Spec(reduce_after_averaging=False)).summary().values["maxDice"]
    each = [np.mean([s.value("maxDice") for s in map(score, clip.pairs[1:-1])]) for clip in CLIPS]
    assert before == pytest.approx(np.mean(each))
    assert before > after


def score(pair: FramePair):  # type: ignore[no-untyped-def]
    return score_frame(pair.truth, pair.prediction)


@pytest.mark.parametrize("layout", ["layout_sun", "layout_numeric"])
def test_published_aggregation(shared: Path, layout: str) -> None:
    folder = shared / "vectors" / "sunseg"
    expected = json.loads((folder / "expected.json").read_text())[layout]
    name = expected["data_name"]
    truths, predictions = folder / layout / "gt" / name / "GT", next((folder / layout / "pred").iterdir()) / name
    clips = []
    for clip in sorted(truths.iterdir()):
        stems = sort_frames([file.stem for file in clip.iterdir()])
        read = lambda *parts: cv2.imread(str(Path(*parts)), 0)
        assert [f"{s}.png" for s in stems[1:-1]] == expected["evaluated_frames"][clip.name]
        kept = [FramePair("", np.zeros((1, 1), np.uint8), np.zeros((1, 1), np.uint8))] * len(stems)
        for i, stem in list(enumerate(stems))[1:-1]:
            file = f"{stem}.png"
            kept[i] = FramePair(stem, read(clip, file), read(predictions, clip.name, file))
        clips.append(PairedClip(clip.name, kept))
    result = evaluate(clips)
    for clip in result.clips:
        values = summarise([clip], SUNSEG).values
        for measure, want in expected["clips"][clip.name].items():
            assert values[measure] == pytest.approx(want, abs=1e-12), (clip.name, measure)
    summary = result.summary()
    for measure, want in expected["dataset"].items():
        assert summary.values[measure] == pytest.approx(want, abs=1e-12), measure
    printed = summary.printed()
    assert {name: printed[name] for name in TOOLBOX} == expected["engine_table_rounded"]


def test_pooled_measures_count_all_pixels_at_once() -> None:
    result = evaluate(CLIPS, POLYPSENSE3D)
    counts = pooled_counts(result.clips)
    values = result.summary().values
    assert [values[name] for name in POOLED] == pytest.approx(
        [counts.dice(), counts.iou(), counts.recall(), counts.precision()]
    )
    scores = [score_frame(p.truth, p.prediction, POLYPSENSE3D).value("mDice") for c in CLIPS for p in c.pairs]  # type: ignore[attr-defined]
    assert result.summary().deviations["mDice"] == pytest.approx(np.std(scores, ddof=1))


def test_flicker_is_the_mean_change_of_iou() -> None:
    scored = score_clip(CLIPS[1])
    iou = [score(p).value("mIoU") for p in CLIPS[1].pairs[1:-1]]
    assert scored.flicker == pytest.approx(np.abs(np.diff(iou)).mean())
    assert np.isnan(score_clip(make_clip("stills", 5, is_video=False)).flicker)
    steady = PairedClip("steady", [make_pair(3)] * 6)
    assert score_clip(steady).flicker == 0


def test_stills_scored_in_parts_join_to_the_same() -> None:
    clip = make_clip("all", 11, is_video=False)
    whole = score_clip(clip, STILLS)
    parts = [
        score_clip(PairedClip("all", clip.pairs[i:j], is_video=False), STILLS) for i, j in ((0, 4), (4, 5), (5, 11))
    ]
    joined = join(parts)
    assert joined.names == whole.names
    a, b = summarise([joined], STILLS), summarise([whole], STILLS)
    for name in TOOLBOX:
        assert a.values[name] == pytest.approx(b.values[name], abs=1e-14)
        assert a.deviations[name] == pytest.approx(b.deviations[name], abs=1e-14)


def test_memory_of_a_clip_does_not_grow_with_its_frames() -> None:
    short, long = (score_clip(make_clip("c", n), STILLS).without_rows() for n in (3, 9))
    size = lambda clip: sum(v.nbytes for v in vars(clip).values() if isinstance(v, np.ndarray))
    assert size(short) == size(long)


def test_short_and_absent_clips_are_answered_in_words() -> None:
    with pytest.raises(InputError, match=r"clip case9: expected at least 3 frames .* found 2"):
        evaluate([make_clip("case9", 2)])
    with pytest.raises(InputError, match="at least one clip"):
        evaluate([])
    with pytest.raises(InputError, match="summary: expected at least one clip"):
        evaluate(CLIPS).summary(lambda clip: clip.subset == "no such")


class Broken:
    name = "broken"

    def load(self):  # type: ignore[no-untyped-def]
        raise InputError("x.png: expected a PNG, found a text file; copy it again.")


def test_a_frame_that_cannot_be_read_is_left_out_and_named() -> None:
    pairs = [make_pair(i) for i in range(5)]
    clip = score_clip(PairedClip("c", [*pairs[:2], Broken(), *pairs[2:]]))
    assert clip.frames == 3
    assert clip.skipped == ("x.png: expected a PNG, found a text file; copy it again.",)
    with pytest.raises(InputError, match=r"found none that can be read; x\.png"):
        score_clip(PairedClip("c", [Broken()] * 3))


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["10", "9", "1"], ["1", "9", "10"]),
        (["a_001-2_a1_x_image9", "a_001-2_a1_x_image10000", "a_000-2_a9_x_image1"],
         ["a_000-2_a9_x_image1", "a_001-2_a1_x_image9", "a_001-2_a1_x_image10000"]),
        (["f_a2_x_image3", "f_a10_x_image1"], ["f_a2_x_image3", "f_a10_x_image1"]),
        (["b10", "b9", "a"], ["a", "b9", "b10"]),
        (["7", "x1", "10"], ["7", "10", "x1"]),
    ],
)  # fmt: skip
def test_order_of_frames(names: list[str], expected: list[str]) -> None:
    assert sort_frames(names) == expected


def test_cases() -> None:
    assert [case_of(n) for n in ("case10_3", "case10", "10_3")] == ["case10", "case10", "10_3"]


def test_interval_resamples_cases_and_matches_a_slow_bootstrap() -> None:
    result = evaluate([make_clip(f"case{i}_{j}", 4, 10 * i + j, 0.5 + i / 12) for i in range(6) for j in (1, 2)])
    got = interval(result.clips, result, "maxDice", replicates=300)
    curves = np.array([clip.mean[4 * 256 : 5 * 256] for clip in result.clips])
    weights = bootstrap_weights([clip.case for clip in result.clips], 300)
    slow = [(w[:, None] * curves).sum(axis=0).max() / w.sum() for w in weights]
    assert (got.low, got.high) == pytest.approx(tuple(np.percentile(slow, [2.5, 97.5])))
    assert got.estimate == pytest.approx(result.summary().values["maxDice"], abs=1e-14)


def test_better_methods_are_found_better() -> None:
    clips = lambda q: [make_clip(f"case{i}", 4, 10 * i, q) for i in range(8)]
    results = {name: evaluate(clips(q)) for name, q in (("good", 1.0), ("bad", 0.4), ("same", 1.0))}
    tests = {(c.a, c.b): c for c in compare(results, "maxDice")}
    assert tests["good", "bad"].test.difference > 0.1
    assert tests["good", "bad"].test.p == pytest.approx(2 / 2**8)
    assert tests["good", "bad"].p_holm >= tests["good", "bad"].test.p
    assert tests["good", "same"].test.p == 1
    with pytest.raises(InputError, match="the same clips"):
        compare({"a": results["good"], "b": evaluate(clips(1.0)[:3])}, "maxDice")


@pytest.mark.parametrize("measure", [*PAPER_SIX, "boundaryF", "flicker"])
def test_every_headline_measure_has_an_interval_or_says_so(measure: str) -> None:
    result = evaluate(CLIPS)
    got = interval(result.clips, result, measure, replicates=100)
    assert got.estimate == pytest.approx(result.summary().values[measure])
    assert np.isnan(got.low) if measure == "flicker" else got.low <= got.estimate <= got.high
