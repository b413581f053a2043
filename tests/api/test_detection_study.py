"""`evaluate detection`, `fuse` and `compare` from files to files, as a user runs them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from polypscope.api.compare import compare
from polypscope.api.evaluate_detection import detection
from polypscope.api.fuse import fuse
from polypscope.cli import run
from polypscope.evaluation.detection.synthetic import SyntheticMethod, SyntheticVideo, simulate_method, simulate_truth
from polypscope.io.detections_csv import DetectionRow, write_detections_csv
from polypscope.io.images import write_image
from polypscope.records.errors import InputError, UsageError

VIDEOS = tuple(
    SyntheticVideo(name, frames, 48, 64, visible, radius_px=8, rate_hz=25)
    for name, frames, visible in (
        ("v1", 12, ((2, 9),)),
        ("v2", 10, ((0, 10),)),
        ("v3", 14, ((1, 5), (8, 12))),
        ("v4", 8, ()),
    )
)
METHODS = (
    SyntheticMethod("good", 0.9, noise_px=2, false_alarms=0.05, scores=True),
    SyntheticMethod("poor", 0.4, noise_px=6, false_alarms=0.5),
    SyntheticMethod("late", 0.7, noise_px=3, false_alarms=0.1, delay=3),
)


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    """Masks, frames, attributes, labels and three CSVs of a small study."""
    root = tmp_path_factory.mktemp("study")
    truth = simulate_truth(VIDEOS)
    for row in range(truth.frame_count):
        name = f"{truth.videos[truth.video[row]]}/{truth.index[row]:03d}.png"
        write_image(root / "masks" / name, truth.polyp_mask(row).astype(np.uint8) * np.uint8(255))
        write_image(root / "frames" / name, np.full((48, 64, 3), 90, dtype=np.uint8))
    for method in METHODS:
        table = simulate_method(truth, VIDEOS, method, seed=1)
        rows = [
            DetectionRow(
                frame=int(truth.index[f]),
                x=float(x),
                y=float(y),
                score=float(s) if s == s else None,
                video=truth.videos[truth.video[f]],
            )
            for f, x, y, s in zip(table.frame, table.x, table.y, table.score, strict=True)
            if x >= 0 and y >= 0
        ]
        write_detections_csv(root / f"{method.name}.csv", rows)
    (root / "attributes.csv").write_text("video,paris,patient\nv1,0-Is,p1\nv2,0-IIa,p1\nv3,0-Isp,p2\nv4,,p3\n")
    lines = ["video,frame,rater,overlay,incomplete"]
    lines += [f"{v.name},{f},r{r},{(f + r) % 2},{f % 2}" for v in VIDEOS for f in range(v.frames) for r in range(3)]
    (root / "labels.csv").write_text("\n".join(lines) + "\n")
    return root


@pytest.fixture(scope="module")
def study(files, tmp_path_factory):
    out = tmp_path_factory.mktemp("out")
    return detection(
        files / "masks",
        *(str(files / f"{m.name}.csv") for m in METHODS),
        out=out,
        rate_hz=25,
        sigma="8%",
        attributes=files / "attributes.csv",
        challenges=files / "labels.csv",
        gallery=True,
        images=files / "frames",
        replicates=50,
    )


def test_everything_is_written(study):
    names = {path.name for path in study.out.iterdir()}
    assert {"report.html", "gallery.html", "frames.parquet", "detections.parquet", "videos.csv", "polyps.csv",
            "combinations.csv", "result.json", "run.json", "tables"} <= names  # fmt: skip
    tables = {path.stem for path in (study.out / "tables").glob("*.tex")}
    assert {"detection-all", "detection-mixed", "detection-polyp_only", "detection-no_polyp", "detection-summary",
            "detection-temporal", "detection-paris", "detection-alarms", "detection-combinations",
            "detection-challenge-recall", "detection-challenge-specificity"} <= tables  # fmt: skip
    assert json.loads((study.out / "run.json").read_text())["status"] == "done"
    assert not list(study.out.rglob("*.part*"))


def test_misses_can_be_listed_from_the_parquet(study):
    frames = pl.read_parquet(study.out / "frames.parquet")
    misses = frames.filter((pl.col("method") == "poor") & (pl.col("fn") > 0))
    assert len(misses) == study.result.method("poor").group("all").counts.fn
    assert {"video", "frame", "pts_s", "tp", "fp", "fn", "tn", "outputs", "polyps", "top_score"} <= set(frames.columns)
    assert len(frames) == 3 * sum(v.frames for v in VIDEOS)
    hits = pl.read_parquet(study.out / "detections.parquet").filter(~pl.col("hit"))
    assert len(hits) == sum(m.group("all").counts.fp for m in study.result.methods)


def test_result_json_has_the_counts_and_no_nan(study):
    content = json.loads((study.out / "result.json").read_text(), parse_constant=lambda name: pytest.fail(name))
    good = next(m for m in content["methods"] if m["name"] == "good")
    assert good["groups"][0]["counts"]["tp"] == study.result.method("good").group("all").counts.tp
    assert content["combinations"]["sigma"] == {"value": 0.08, "unit": "diagonal"}


@pytest.mark.parametrize("page", ["report.html", "gallery.html"])
def test_pages_stand_alone_and_say_what_they_are(study, page):
    text = (study.out / page).read_text(encoding="utf-8")
    assert "Research software, not a medical device." in text
    for outside in ('src="http', 'href="http', "@import", "url(http"):
        assert outside not in text
    assert "good" in text
    assert "nan" not in text.replace("nance", "").lower().split("</style>")[1].split("<script>")[0].split()


def test_gallery_draws_on_the_frames(study):
    text = (study.out / "gallery.html").read_text(encoding="utf-8")
    assert "data:image/jpeg;base64," in text
    assert "<polygon" in text
    assert "false positive at" in text


def test_example_makes_a_complete_report(tmp_path, monkeypatch):
    """On a few short videos in place of the 18 of the paper; every table and figure of the report is there."""
    from polypscope.evaluation.detection import synthetic

    short = [
        SyntheticVideo(f"v{i}", 90, 120, 160, visible, radius_px=14, paris=paris)
        for i, (visible, paris) in enumerate(
            [(((5, 85),), "0-Is"), (((0, 90),), "0-IIa"), (((5, 40), (50, 85)), "0-IIa"), ((), None)]
        )
    ]
    monkeypatch.setattr(synthetic, "PAPER_VIDEOS", tuple(short))
    report = detection(example=True, out=tmp_path, replicates=30)
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    for form in ("Table V ", "Table VII ", "Table VIII ", "Table IX ", "Table XI(a) ", "Table XI(b) ", "Table XII "):
        assert f"({form}in form)" in text, form
    assert {c.metric for c in report.comparisons} >= {"F1", "concentration ratio"}
    assert report.search is not None
    assert (tmp_path / "gallery.html").is_file()
    assert {path.name for path in (tmp_path / "example").iterdir()} >= {"steady.csv", "challenges.csv"}


def test_stills_with_heat_maps_compare_concentration(tmp_path):
    """Table VI, XI(b) and Figure 11: two methods as folders of heat maps on stills."""
    rng = np.random.default_rng(0)
    for i in range(6):
        mask = np.zeros((40, 50), dtype=np.uint8)
        mask[10:25, 10 + i : 30 + i] = 255
        write_image(tmp_path / "masks" / f"p{i}.png", mask)
        write_image(tmp_path / "sharp" / f"p{i}.png", np.where(mask, rng.integers(140, 255), 10).astype(np.uint8))
        write_image(tmp_path / "broad" / f"p{i}.png", np.where(mask, rng.integers(140, 160), 100).astype(np.uint8))
    report = detection(
        tmp_path / "masks", str(tmp_path / "sharp"), str(tmp_path / "broad"), out=tmp_path / "out", replicates=30
    )
    assert [c.metric for c in report.comparisons] == ["concentration ratio"]
    assert report.comparisons[0].best == "sharp"
    assert report.result.method("sharp").group("all").counts.tp == 6
    text = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "Table VI in form" in text
    assert "Table XI(b) in form" in text
    assert "Time</h2>" not in text


def test_fuse_writes_what_evaluate_reads(files, tmp_path, capsys):
    paths = [str(files / f"{m.name}.csv") for m in METHODS]
    result = fuse(
        *paths, strategy="voting", sigma="8%", truth=files / "masks", search=True, sweep="4%,8%", out=tmp_path / "fused"
    )
    shown = capsys.readouterr().out
    assert "Best subsets by f1" in shown
    assert len(pl.read_csv(tmp_path / "fused" / "sweep.csv")) == 2
    assert len({c.methods for c in result.search.combinations}) == 7
    again = detection(files / "masks", str(tmp_path / "fused" / "fused.csv"), out=tmp_path / "again", replicates=20)
    every = next(
        c for c in result.search.combinations if c.strategy == "voting" and c.group == "all" and len(c.methods) == 3
    )
    assert again.result.methods[0].group("all").counts == every.counts


def test_fuse_without_truth(files, tmp_path):
    paths = [str(files / f"{m.name}.csv") for m in METHODS]
    assert len(fuse(*paths, sigma="5px", out=tmp_path).table.x) > 0
    assert fuse(*paths, sigma="5%", size="64x48", out=tmp_path).sigma.pixels(48, 64) == pytest.approx(4)
    union = fuse(*paths, strategy="union", out=tmp_path)
    assert len(union.table.x) == sum(len(pl.read_csv(path)) for path in paths)


def test_compare_reads_result_folders_and_tables(study, files, tmp_path):
    report = compare(str(study.out), metric=("f1", "latency_frames"), out=tmp_path / "c", replicates=50)
    f1, latency = report.comparisons
    assert f1.methods == ("good", "poor", "late")
    assert f1.cases == ("v1", "v2", "v3")  # as in the paper, videos without polyps are left out
    assert f1.clusters == 2  # two patients
    assert not latency.higher_is_better
    written = json.loads((tmp_path / "c" / "comparison.json").read_text(encoding="utf-8"))
    assert [c["metric"] for c in written] == ["f1", "latency_frames"]
    assert "not a medical device" in (tmp_path / "c" / "comparison.html").read_text(encoding="utf-8")

    rng = np.random.default_rng(0)
    for name in ("x", "y"):
        rows = [{"method": "model", "case": f"c{i}", "dice": float(rng.uniform(0.7, 0.9))} for i in range(8)]
        pl.DataFrame(rows).write_csv(tmp_path / f"{name}.csv")
    both = compare(
        f"x={tmp_path / 'x.csv'}", f"y={tmp_path / 'y.csv'}", metric=("dice",), out=tmp_path / "d", replicates=50
    )
    assert both.comparisons[0].methods == ("x", "y")
    clips = [
        {"method": m, "subset": "easy", "case": f"case{i // 2}", "clip": f"case{i // 2}_{i % 2}", "dice": 0.5 + 0.1 * i}
        for m in ("x", "y")
        for i in range(4)
    ]
    (tmp_path / "seg").mkdir()
    pl.DataFrame(clips).write_csv(tmp_path / "seg" / "clips.csv")
    by_clip = compare(str(tmp_path / "seg"), metric=("dice",), out=tmp_path / "f", replicates=50).comparisons[0]
    assert (len(by_clip.cases), by_clip.clusters) == (4, 2)
    with pytest.raises(InputError, match="two values for case"):
        compare(str(tmp_path / "x.csv"), str(tmp_path / "y.csv"), metric=("dice",), out=tmp_path / "e")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda f, t: detection(out=t), "--example"),
        (lambda f, t: detection(f / "masks", out=t), "found no method"),
        (lambda f, t: detection(f / "masks", "m.csv", example=True, out=t), "leave out the truth"),
        (lambda f, t: detection(f / "masks", str(f / "good.csv"), sigma="wide", out=t), "sigma"),
        (lambda f, t: fuse(str(f / "good.csv"), out=t), "at least two"),
        (lambda f, t: fuse(str(f / "good.csv"), str(f / "late.csv"), out=t), "--sigma-from"),
        (lambda f, t: fuse(str(f / "good.csv"), str(f / "late.csv"), sigma="3%", out=t), "--size"),
        (lambda f, t: fuse(str(f / "good.csv"), str(f / "late.csv"), sigma="3px", search=True, out=t), "add --truth"),
        (lambda f, t: compare(out=t), "found none"),
        (lambda f, t: compare(str(f / "labels.csv"), out=t), "'method'"),
    ],
)
def test_errors_are_sentences(files, tmp_path, call, words):
    with pytest.raises((UsageError, InputError), match=words):
        call(files, tmp_path / "out")


def test_command_line_prints_one_sentence_for_a_bad_csv(files, tmp_path, capsys):
    bad = tmp_path / "bad.csv"
    bad.write_text("video,frame,x,y\nv1,99,5,5\n")
    code = run(["evaluate", "detection", str(files / "masks"), str(bad), "--out", str(tmp_path / "out")])
    error = capsys.readouterr().err
    assert code == 1
    assert "bad.csv, line 2: expected a frame from 0 to 11 in 'v1', found 99" in error
    assert "Traceback" not in error
