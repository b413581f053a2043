"""Truth, methods and labels of a detection study from every kind of file, and what is said about bad ones."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from polypscope.evaluation.detection import evaluate_detection
from polypscope.io.challenge_labels import read_challenge_labels, write_challenge_labels
from polypscope.io.detection_methods import locate_in_map, read_method, split_name
from polypscope.io.detection_truth import frame_index, read_truth, with_attributes
from polypscope.io.images import write_image
from polypscope.records import ProbabilityMap
from polypscope.records.errors import PolypscopeError

SIZE = (24, 32)


def mask(*squares: tuple[int, int]) -> np.ndarray:
    out = np.zeros(SIZE, dtype=np.uint8)
    for x, y in squares:
        out[y : y + 6, x : x + 6] = 255
    return out


@pytest.fixture
def videos(tmp_path: Path) -> Path:
    """Video a: frames 0-3, polyp in 1 and 2 (two polyps in 2). Video b: frames 0-1 without polyp."""
    root = tmp_path / "truth"
    for name, frames in {
        "a": [mask(), mask((4, 4)), mask((4, 4), (20, 10)), mask()],
        "b": [mask(), mask()],
    }.items():
        for f, values in enumerate(frames):
            write_image(root / name / f"{name}_{f:03d}.png", values)
    return root


@pytest.fixture
def stills(tmp_path: Path) -> Path:
    root = tmp_path / "stills"
    write_image(root / "polyp_one.png", mask((4, 4)))
    write_image(root / "normal.png", mask())
    return root


def write(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return str(path)


def counts(truth, *methods):
    found = evaluate_detection(truth.table, [m.table for m in methods]).methods[0].group("all").counts
    return found.tp, found.fp, found.tn, found.fn


def test_mask_folders_are_videos_without_invented_seconds(videos):
    truth = read_truth(videos)
    table = truth.table
    assert (table.kind, table.videos, table.frame_count) == ("videos", ("a", "b"), 6)
    assert table.polyp_count.tolist() == [0, 1, 2, 0, 0, 0]
    assert not table.timed
    assert any("in frames only" in text for text in truth.assumptions)
    timed = read_truth(videos, rate_hz=25).table
    assert timed.duration_s.tolist() == pytest.approx([0.16, 0.08])


def test_time_stamps_beside_the_masks(videos):
    write(videos / "a" / "timestamps.csv", "frame,pts_s\n0,0\n1,0.04\n2,0.5\n3,0.54\n")
    write(videos / "b" / "timestamps.csv", "frame,pts_s\n0,0\n1,0.04\n")
    assert read_truth(videos).table.pts_s.tolist() == [0, 0.04, 0.5, 0.54, 0, 0.04]
    write(videos / "b" / "timestamps.csv", "frame,pts_s\n0,0\n")
    with pytest.raises(PolypscopeError, match=r"timestamps.csv: expected a time stamp for every frame.*frame 1"):
        read_truth(videos)


def test_masks_beside_frames(tmp_path):
    for name in ("seq1", "seq2"):
        write_image(tmp_path / "set" / name / "images" / "1.png", mask())
        write_image(tmp_path / "set" / name / "GT" / "1.png", mask((4, 4)))
    write_image(tmp_path / "stills" / "images" / "1.png", mask())
    write_image(tmp_path / "stills" / "masks" / "1.png", mask((4, 4)))
    table = read_truth(tmp_path / "set").table
    assert (table.kind, table.videos, table.polyp_count.tolist()) == ("videos", ("seq1", "seq2"), [1, 1])
    table = read_truth(tmp_path / "stills").table
    assert (table.kind, table.polyp_count.tolist()) == ("stills", [1])


def test_128_is_polyp_and_ids_are_kept(tmp_path):
    grey = np.zeros(SIZE, dtype=np.uint8)
    grey[2:4, 2:4], grey[10:12, 10:12] = 128, 127
    write_image(tmp_path / "m" / "1.png", grey)
    assert read_truth(tmp_path / "m").table.regions.area_px.tolist() == [4]
    labels = np.zeros(SIZE, dtype=np.uint8)
    labels[2:4, 2:4], labels[8:9, 8:9], labels[20:22, 20:22] = 3, 5, 3
    write_image(tmp_path / "ids" / "v" / "1.png", labels)
    table = read_truth(tmp_path / "ids", instances="ids").table
    assert (table.polyp_id.tolist(), table.identities) == ([3, 5], True)


def test_one_csv_with_a_video_column(videos, tmp_path):
    truth = read_truth(videos)
    text = write(tmp_path / "m.csv", "video,frame,x,y\na,1,5,5\na,2,21,11\nb,0,1,1\n")
    assert counts(truth, read_method(text, truth)) == (2, 1, 3, 1)


def test_one_csv_per_video(videos, tmp_path):
    truth = read_truth(videos)
    write(tmp_path / "m" / "a.csv", "1 , 5, 5, 0.9\n2, 21, 11, 0.4\n")
    write(tmp_path / "m" / "b.csv", "frame,x,y,confidence\n")
    method = read_method(f"mine={tmp_path / 'm'}", truth)
    assert method.table.name == "mine"
    assert method.table.has_scores
    assert counts(truth, method) == (2, 0, 4, 1)
    assert any("no header" in text for text in method.assumptions)


def test_semicolons_and_counting_from_one(videos, tmp_path):
    truth = read_truth(videos)
    text = write(tmp_path / "m.csv", "video;frame;x;y\na;2;5,5;5,0\n")
    assert counts(truth, read_method(text, truth, first_frame=1)) == (1, 0, 4, 2)


def test_stills_by_name_with_and_without_suffix(stills, tmp_path):
    truth = read_truth(stills)
    assert truth.table.kind == "stills"
    text = write(tmp_path / "m.csv", "image,x,y\npolyp_one.png,5,5\nnormal,3,3\n")
    assert counts(truth, read_method(text, truth)) == (1, 1, 0, 0)


BAD = {
    "missing column": ("frame,x\n1,5\n", "line 1.*no y"),
    "video column missing": ("frame,x,y\n1,5,5\n", "line 2: expected a column 'video'"),
    "empty": ("", "line 1: .*found an empty file; .*write the header line"),
    "blank": ("\n\n", "line 1: .*write the header line"),
    "frame outside": ("video,frame,x,y\na,1,5,5\na,9,5,5\n", "line 3: expected a frame from 0 to 3 in 'a', found 9"),
    "not a number": ("video,frame,x,y\na,1,nan,5\n", "line 2: expected a number for x"),
    "text": ("video,frame,x,y\na,1,five,5\n", "line 2: expected a number for x, found 'five'"),
    "negative": ("video,frame,x,y\na,1,5,-3\n", "line 2: "),
    "duplicate": ("video,frame,x,y\na,1,5,5\na,1,5,5\n", "line 3: .*repetition of line 2"),
    "wrong video": ("video,frame,x,y\nc,1,5,5\n", "line 2: expected a video of the ground truth, found 'c'"),
    "confidence": ("video,frame,x,y,confidence\na,1,5,5,7\n", "line 2: expected a confidence from 0 to 1"),
    "presence": ("video,frame,has_polyp\na,1,1\n", "line 1: .*found presence only"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_csvs_name_file_line_and_what_to_do(videos, tmp_path, case):
    content, words = BAD[case]
    text = write(tmp_path / "bad.csv", content)
    truth = read_truth(videos)
    with pytest.raises(PolypscopeError, match=words) as caught:
        read_method(text, truth)
    assert "bad.csv" in str(caught.value)
    assert ";" in str(caught.value), "the sentence says what to do"


def test_duplicates_can_be_kept(videos, tmp_path):
    truth = read_truth(videos)
    text = write(tmp_path / "m.csv", "video,frame,x,y\nb,0,5,5\nb,0,5,5\n")
    assert counts(truth, read_method(text, truth, duplicates="keep")) == (0, 2, 3, 3)


def test_a_missing_video_is_refused_silent_or_skipped(videos, tmp_path):
    truth = read_truth(videos)
    write(tmp_path / "m" / "a.csv", "frame,x,y\n1,5,5\n")
    with pytest.raises(PolypscopeError, match=r"found none for b; .*--missing empty.*--missing skip"):
        read_method(str(tmp_path / "m"), truth)
    assert counts(truth, read_method(str(tmp_path / "m"), truth, missing="empty")) == (1, 0, 4, 2)
    assert counts(truth, read_method(str(tmp_path / "m"), truth, missing="skip")) == (1, 0, 2, 2)
    write(tmp_path / "m" / "A1.csv", "frame,x,y\n1,5,5\n")
    with pytest.raises(PolypscopeError, match=r"A1.csv: expected the name of a video of the truth, found 'A1'"):
        read_method(str(tmp_path / "m"), truth)


def test_heat_maps_give_points_boxes_and_concentration(videos, tmp_path):
    truth = read_truth(videos)
    for name, frames in (("a", 4), ("b", 2)):
        for f in range(frames):
            grey = np.zeros(SIZE, dtype=np.uint8)
            if (name, f) == ("a", 1):
                grey[4:10, 4:10] = 204
                grey[20:22, 28:30] = 51
            write_image(tmp_path / "maps" / name / f"{name}_{f:03d}.png", grey)
    method = read_method(str(tmp_path / "maps"), truth)
    assert counts(truth, method) == (1, 0, 4, 2)
    assert method.table.score.tolist() == pytest.approx([0.8])
    assert method.table.concentration is not None
    inside = 36 * 204 / (36 * 204 + 4 * 51)
    assert np.nan_to_num(method.table.concentration, nan=-1).tolist() == pytest.approx([-1, inside, 0, -1, -1, -1])
    write_image(tmp_path / "maps" / "b" / "b_001.png", np.zeros((5, 5), dtype=np.uint8))
    with pytest.raises(PolypscopeError, match=r"b_001.png: expected 32×24 pixels like its truth, found 5×5; resize"):
        read_method(str(tmp_path / "maps"), truth)
    (tmp_path / "maps" / "b" / "b_001.png").unlink()
    with pytest.raises(PolypscopeError, match="each of 2 frames, found 1"):
        read_method(str(tmp_path / "maps"), truth)


def test_a_ring_has_its_centroid_outside_and_its_peak_inside():
    values = np.zeros((11, 11), dtype=np.float32)
    values[2:9, 2:9] = 0.9
    values[4:7, 4:7] = 0.0
    values[2, 5] = 1.0
    ring = ProbabilityMap(values)
    assert locate_in_map(ring)[0].point_xy == (5.0, 5.0)
    assert locate_in_map(ring, point="peak")[0].point_xy == (5.0, 2.0)
    assert locate_in_map(ring, threshold=0.95)[0].score == pytest.approx(1.0)


def coco(tmp_path: Path) -> Path:
    images = [
        {"id": 10 * v + f, "file_name": f"{name}/{f:03d}.png", "width": 32, "height": 24, "pts_s": f / 25}
        for v, name in enumerate("ab")
        for f in range(2)
    ]
    annotations = [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [4, 4, 6, 6]}]
    path = tmp_path / "truth.json"
    content = {"images": images, "annotations": annotations, "categories": [{"id": 1, "name": "polyp"}]}
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def test_coco_truth_and_results(tmp_path):
    truth = read_truth(coco(tmp_path))
    assert (truth.table.kind, truth.table.videos, truth.table.timed) == ("videos", ("a", "b"), True)
    results = [
        {"image_id": 1, "category_id": 1, "bbox": [4, 4, 6, 6], "score": 0.9},
        {"image_id": 11, "category_id": 1, "bbox": [4, 4, 6, 6], "score": 0.3},
    ]
    text = write(tmp_path / "det.json", json.dumps(results))
    method = read_method(text, truth)
    assert counts(truth, method) == (1, 1, 2, 0)
    assert method.table.regions is not None
    text = write(tmp_path / "bad.json", json.dumps([{**results[0], "score": 3}]))
    with pytest.raises(PolypscopeError, match="rescale"):
        read_method(text, truth)


def test_coco_results_need_a_coco_truth(videos, tmp_path):
    with pytest.raises(PolypscopeError, match="give the truth as COCO"):
        read_method(write(tmp_path / "r.json", "[]"), read_truth(videos))


def test_attributes_set_paris_and_patient(videos, tmp_path):
    truth = read_truth(videos).table
    path = write(tmp_path / "attributes.csv", "video,paris,patient\na,0-ISp,p1\nb,,p1\n")
    filled = with_attributes(truth, path)
    assert set(filled.paris) == {"0-Isp"}
    assert filled.patients == ("p1", "p1")
    for content, words in (
        ("video,paris\nz,0-Is\n", "line 2: expected a video of the truth"),
        ("video,paris\na,flat\n", "line 2: Paris class"),
        ("name,paris\na,0-Is\n", "expected a column 'video'"),
    ):
        with pytest.raises(PolypscopeError, match=words):
            with_attributes(truth, write(tmp_path / "bad.csv", content))


def test_labels_round_trip_and_faults(videos, tmp_path):
    truth = read_truth(videos).table
    text = "video,frame,rater,overlay,lumen\na,1,r1,1,0\na,1,r2,1,\na,1,r3,0,1\nb,0,r1,0,1\n"
    labels = read_challenge_labels(write(tmp_path / "labels.csv", text), truth)
    assert labels.raters == ("r1", "r2", "r3")
    assert labels.majority()[1].tolist() == [1, -1]
    again = read_challenge_labels(write_challenge_labels(tmp_path / "again.csv", labels, truth), truth)
    assert np.array_equal(again.values, labels.values, equal_nan=True)
    for content, words in (
        ("video,frame,rater,overlai\na,1,r,1\n", "did you mean 'overlay'"),
        ("video,frame,rater,overlay\na,1,r,2\n", "line 2: expected 0, 1 or nothing for overlay, found 2"),
        ("video,frame,rater,overlay\na,7,r,1\n", "line 2: expected a frame of 'a', found 7"),
        ("video,frame,rater,overlay\nq,1,r,1\n", "line 2: expected a video of the truth"),
        ("video,frame,rater,overlay\na,1,r,1\na,1,r,0\n", "line 3: expected a rater once per frame"),
        ("frame,rater,overlay\n1,r,1\n", "expected a column 'video'"),
    ):
        with pytest.raises(PolypscopeError, match=words):
            read_challenge_labels(write(tmp_path / "bad.csv", content), truth)


def test_truth_faults(tmp_path, videos):
    (tmp_path / "none").mkdir()
    with pytest.raises(PolypscopeError, match="found neither"):
        read_truth(tmp_path / "none")
    write_image(videos / "loose.png", mask())
    with pytest.raises(PolypscopeError, match="found both; move the loose images"):
        read_truth(videos)
    with pytest.raises(PolypscopeError, match="found nothing there"):
        read_truth(tmp_path / "nowhere")
    with pytest.raises(PolypscopeError, match="found nothing there"):
        read_method("m=nowhere.csv", read_truth(videos / "a"))


def test_names_and_numbers():
    assert split_name("ASU=x/y.csv") == ("ASU", Path("x/y.csv"))
    assert split_name("x/maps") == ("maps", Path("x/maps"))
    assert frame_index("a_0012") == 12
