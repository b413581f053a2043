"""calibrate, undistort, measure and the evaluations as a user calls them, on a tiny simulation and on made files."""

from __future__ import annotations

import json
from pathlib import Path

import cv2
import numpy as np
import pytest

from polypscope.api.calibrate import calibrate
from polypscope.api.evaluate_depth import depth as evaluate_depth
from polypscope.api.evaluate_propagation import propagation
from polypscope.api.evaluate_size import size as evaluate_size
from polypscope.api.measure import forceps, image
from polypscope.api.simulate import simulate
from polypscope.cli import run
from polypscope.geometry import caliper, cameras
from polypscope.io.depth import write_depth
from polypscope.io.images import read_rgb
from polypscope.io.known_depths import read_known_depths
from polypscope.io.masks import read_instances
from polypscope.pipeline.models import Models
from polypscope.pipeline.polyp_views import Predictions, polyp_views
from polypscope.records import BinaryMask, Camera, DepthKind, DepthMap, InputError, ProbabilityMap, UsageError
from polypscope.records.errors import DamagedInput, RecordError
from polypscope.runtime.depth import DepthEstimator


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("simulated") / "set"
    simulate(root, frames=4, sequences=1, seed=3, size="160x160", negatives=0.0, fov_shape="none")
    return root


def sequence(data: Path) -> Path:
    return next(p for p in sorted(data.iterdir()) if (p / "sequence.json").is_file())


def frame_with_polyp(data: Path) -> tuple[Path, Path, Path, int, float]:
    folder = sequence(data)
    facts = json.loads((folder / "sequence.json").read_text())
    best = (0, "", 0)
    for path in sorted((folder / "masks").iterdir()):
        mask = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
        for polyp in facts["polyps"]:
            inside = int((mask[2:-2, 2:-2] == polyp["id"]).sum())
            whole = int((mask == polyp["id"]).sum())
            if inside == whole and whole > best[0]:
                best = (whole, path.stem, polyp["id"])
    assert best[0] > 0, "the simulation shows no whole polyp"
    size = next(p["size_mm"] for p in facts["polyps"] if p["id"] == best[2])
    picture = next((folder / "rgb").glob(best[1] + ".*"))
    return picture, folder / "masks" / f"{best[1]}.png", folder / "depth" / f"{best[1]}.png", best[2], size


def test_measure_image_with_true_depth(data: Path, tmp_path: Path) -> None:
    picture, mask, depth, polyp, true = frame_with_polyp(data)
    camera = sequence(data) / "camera.json"
    found = image(picture, mask=mask, depth=depth, camera=camera, polyp=polyp, out=tmp_path / "size.json")
    assert found.size.long_mm == pytest.approx(true, rel=0.25)
    written = json.loads((tmp_path / "size.json").read_text())
    assert written["long_mm"] == found.size.long_mm
    assert any("simulated" in text for text in written["remarks"])


def test_without_a_depth_map_the_network_looks_carefully(data: Path) -> None:
    picture, mask, _, polyp, _ = frame_with_polyp(data)
    camera = sequence(data) / "camera.json"
    found = image(picture, mask=mask, camera=camera, polyp=polyp).size
    lens, part = Camera.from_json(camera.read_text()), BinaryMask(read_instances(mask) == polyp)
    rgb, ranger = read_rgb(picture), DepthEstimator.load()
    sizes = [
        caliper.measure(part, ranger.depth(rgb, lens, careful=careful), lens, rgb=rgb).long_mm
        for careful in (False, True)
    ]
    assert sizes[0] != pytest.approx(sizes[1], rel=1e-3)
    assert found.long_mm == pytest.approx(sizes[1], rel=1e-6)


def test_both_spellings_of_measure_work(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture, mask, depth, polyp, _ = frame_with_polyp(data)
    words = [str(picture), "--mask", str(mask), "--depth", str(depth), "--camera", str(sequence(data) / "camera.json")]
    words += ["--polyp", str(polyp)]
    assert run(["measure", *words]) == 0
    first = capsys.readouterr().out
    assert run(["measure", "image", *words]) == 0
    assert capsys.readouterr().out == first
    assert "not a medical device" in first


def test_measure_says_what_is_wrong(data: Path, tmp_path: Path) -> None:
    picture, mask, depth, _, _ = frame_with_polyp(data)
    camera = sequence(data) / "camera.json"
    with pytest.raises(UsageError, match="one of the ids"):
        image(picture, mask=mask, depth=depth, camera=camera, polyp=99)
    empty = tmp_path / "empty.png"
    cv2.imwrite(str(empty), np.zeros((160, 160), np.uint8))
    with pytest.raises(RecordError, match="empty mask"):
        image(picture, mask=empty, depth=depth, camera=camera)
    bare = tmp_path / "depth.png"  # read and written anew, a map no longer states its unit
    cv2.imwrite(str(bare), cv2.imread(str(depth), cv2.IMREAD_UNCHANGED))
    with pytest.raises(RecordError, match="looks like metres"):
        image(picture, mask=mask, depth=bare, camera=camera, depth_unit=0.00001)
    with pytest.raises(UsageError, match="expected a unit"):
        image(picture, mask=mask, depth=bare, camera=camera)


def test_evaluate_depth_of_a_scaled_prediction(data: Path, tmp_path: Path) -> None:
    folder = sequence(data)
    for path in (folder / "depth").iterdir():
        raw = cv2.imread(str(path), cv2.IMREAD_UNCHANGED).astype(np.float32) * 0.01
        raw[raw == 0] = np.nan
        target = tmp_path / "predicted" / folder.name / path.name
        target.parent.mkdir(parents=True, exist_ok=True)
        write_depth(target, DepthMap(raw * np.float32(1.1), DepthKind.Z_MM))
    found = evaluate_depth(data, tmp_path / "predicted", out=tmp_path / "out").result
    assert found.value("absrel") == pytest.approx(0.1, abs=0.002)
    assert found.value("absrel", "median") < 0.002
    page = (tmp_path / "out" / "report.html").read_text()
    assert "not a medical device" in page
    assert "simulated data only" in page
    assert 'class="num best"' not in page.split("Published elsewhere")[0]  # one prediction judged in several ways
    points = tmp_path / "points.csv"
    truth = cv2.imread(str(next(iter(sorted((folder / "depth").iterdir())))), cv2.IMREAD_UNCHANGED)[80, 80] * 0.01
    points.write_text(f"sequence,frame,x_px,y_px,depth_mm\n{folder.name},000000,80,80,{truth}\n")
    sparse = evaluate_depth(points, tmp_path / "predicted", out=tmp_path / "sparse").result
    assert sparse.value("absrel") == pytest.approx(0.1, abs=0.002)


def test_predicted_depth_may_be_arrays_and_in_another_unit(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = sequence(data)
    target = tmp_path / "predicted" / folder.name
    target.mkdir(parents=True)
    for path in (folder / "depth").iterdir():
        raw = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
        np.save(target / f"{path.stem}.npy", raw.astype(np.float32) * 0.01 / 1000 * 1.1)  # metres
    wrong = evaluate_depth(data, tmp_path / "predicted", out=tmp_path / "wrong").result
    assert wrong.value("absrel") == pytest.approx(0.9989, abs=1e-3)
    said = capsys.readouterr()
    assert "the middle of a frame is 909 times as far as predicted" in said.out + said.err
    right = evaluate_depth(data, tmp_path / "predicted", out=tmp_path / "right", depth_unit=1000.0).result
    assert right.value("absrel") == pytest.approx(0.1, abs=0.002)
    said = capsys.readouterr()
    assert "times as far" not in said.out + said.err
    points = tmp_path / "points.csv"
    truth = cv2.imread(str(folder / "depth" / "000000.png"), cv2.IMREAD_UNCHANGED)[80, 80] * 0.01
    points.write_text(f"sequence,frame,x_px,y_px,depth_mm\n{folder.name},000000,80,80,{truth}\n")
    sparse = evaluate_depth(points, tmp_path / "predicted", out=tmp_path / "sparse", depth_unit=1000.0).result
    assert sparse.value("absrel") == pytest.approx(0.1, abs=0.002)
    cells = propagation(
        str(data), masks=folder / "masks", depth=tmp_path / "predicted", models=False, every=1,
        out=tmp_path / "propagation", depth_unit=1000.0,
    ).result  # fmt: skip
    measured = [row for row in cells.sizes.rows if "true mask, predicted depth" in row.estimates_mm]
    assert measured, "a polyp was measured with the maps"
    for row in measured:
        assert row.estimates_mm["true mask, predicted depth"] == pytest.approx(row.true_mm, rel=0.3)
    cv2.imwrite(str(target / "000000.png"), np.zeros((160, 160, 3), np.uint8))  # a picture of the map, to be looked at
    again = evaluate_depth(data, tmp_path / "predicted", out=tmp_path / "again", depth_unit=1000.0).result
    assert again.value("absrel") == right.value("absrel")
    for run_without_maps in (evaluate_depth, propagation):
        with pytest.raises(UsageError, match="that it belongs to, found none"):
            run_without_maps(str(data), out=tmp_path / "none", depth_unit=1000.0)
    with pytest.raises(UsageError, match=r"expected unit_mm 0\.01 as stated in the file"):
        evaluate_depth(data, data, out=tmp_path / "other", depth_unit=1000.0)


def test_a_picture_is_measured_with_the_camera_beside_it_or_a_field_of_view(data: Path, tmp_path: Path) -> None:
    picture, mask, depth, polyp, _ = frame_with_polyp(data)
    stated = image(picture, mask=mask, depth=depth, camera=sequence(data) / "camera.json", polyp=polyp).size
    assert image(picture, mask=mask, depth=depth, polyp=polyp).size == stated
    wide = image(picture, mask=mask, depth=depth, polyp=polyp, fov=140.0, lens="fisheye").size
    assert wide.long_mm > 1.05 * stated.long_mm
    alone = tmp_path / picture.name
    alone.write_bytes(picture.read_bytes())
    with pytest.raises(UsageError, match="found none; give its file, or --fov"):
        image(alone, mask=mask, depth=depth, polyp=polyp)


def test_evaluate_depth_looks_carefully_unless_it_should_be_fast(data: Path, tmp_path: Path) -> None:
    folder = sequence(data)
    truth = cv2.imread(str(folder / "depth" / "000000.png"), cv2.IMREAD_UNCHANGED).astype(np.float32) * 0.01
    rgb, camera = read_rgb(folder / "rgb" / "000000.png"), Camera.from_json((folder / "camera.json").read_text())
    told = {}
    for fast, looks in ((False, "flips and quarter turns"), (True, "once")):
        found = evaluate_depth(data, out=tmp_path / looks, every=4, fast=fast).result
        predicted = DepthEstimator.load().depth(rgb, camera, careful=not fast).values
        seen = (truth > 0) & np.isfinite(predicted)
        told[fast] = found.value("absrel")
        assert told[fast] == pytest.approx(np.mean(np.abs(predicted[seen] / truth[seen] - 1)), abs=1e-4)
        assert looks in (tmp_path / looks / "report.html").read_text()
    assert told[True] != pytest.approx(told[False], abs=1e-3)
    with pytest.raises(UsageError, match="predicted maps"):
        evaluate_depth(data, tmp_path / "predicted", out=tmp_path / "out", fast=True)


def test_evaluate_propagation_with_true_masks_as_predictions(data: Path, tmp_path: Path) -> None:
    folder = sequence(data)
    for path in (folder / "masks").iterdir():
        mask = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
        target = tmp_path / "masks" / folder.name / path.name
        target.parent.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(target), (mask > 0).astype(np.uint8) * 255)
    found = propagation(f"clean={data}", masks=tmp_path / "masks", models=False, every=1, out=tmp_path / "out")
    names = [c.column for c in found.groups[0][1].columns]
    assert "true mask, true depth" in names
    assert names[-1] == "constant"
    # The table of polyps can be scored again as it is, and its first estimate is the one that has the intervals.
    again = evaluate_size(tmp_path / "out" / "polyps.csv", out=tmp_path / "again").result
    assert [c.column for c in again.columns] == [c.column for c in found.result.sizes.columns]
    assert again.columns[0].mae_mm == pytest.approx(found.result.sizes.columns[0].mae_mm)
    assert "Published elsewhere" in (tmp_path / "out" / "report.html").read_text()


def test_models_see_the_frames_that_are_not_measured(data: Path) -> None:
    class Seer:
        seen, started = 0, 0

        def step(self, rgb: np.ndarray) -> ProbabilityMap:
            self.seen += 1
            return ProbabilityMap(np.zeros(rgb.shape[:2], np.float32))

        def reset(self) -> None:
            self.started += 1

    count = len(list((sequence(data) / "masks").iterdir()))
    shown = {}
    for every in (1, 2):
        seer = Seer()
        models = Models(seer=seer, ranger=None, identity="", threshold=0.8)  # type: ignore[arg-type]
        shown[every] = len(list(polyp_views(data, Predictions(models=models), every=every)))
        assert (seer.seen, seer.started) == (count, 1)
    assert 0 < shown[2] < shown[1]
    with pytest.raises(UsageError, match="1 or more"):
        list(polyp_views(data, Predictions(), every=0))


def test_evaluate_size_from_a_table(tmp_path: Path) -> None:
    table = tmp_path / "sizes.csv"
    table.write_text(
        "polyp,true_mm,estimated_mm,low_mm,high_mm,doctor_mm\n"
        "a,4,4.4,3.8,5,5\nb,6,5.9,5,7,7\nc,12,11,10,13,9\nd,9,9.5,8,11,8\n"
    )
    found = evaluate_size(table, out=tmp_path / "out").result
    assert found.column("estimated").mae_mm == pytest.approx(0.5)
    assert found.column("doctor").mae_mm == pytest.approx(1.5)
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Bland" in page
    assert "Seen whole" not in page
    table.write_text("polyp,true_mm,estimated_mm,flags\na,4,4.5,\nb,9,6,few_frames truncated\nc,6,6.1,oblique\n")
    flagged = evaluate_size(table, out=tmp_path / "out").result
    assert flagged.whole is not None
    assert flagged.whole.mae_mm == pytest.approx(0.3)
    assert "Seen whole" in (tmp_path / "out" / "report.html").read_text()
    assert "estimated, seen whole" in (tmp_path / "out" / "scores.csv").read_text()
    table.write_text("polyp,true_mm,estimated_mm\na,4,4\na,5,5\n")
    with pytest.raises(InputError, match="more than once"):
        evaluate_size(table, out=tmp_path / "out")


CAMERA = Camera.from_fov(1157, 1006, 90.0)


def shaft_marks(seed: int) -> list[list[float]]:
    generator = np.random.default_rng(seed)
    points = np.array([1.0, 0.5, 25.0]) + np.arange(4)[:, None] * 5.0 * np.array([0.6, 0.6, -0.53]) / np.linalg.norm(
        [0.6, 0.6, 0.53]
    )
    return (cameras.project(CAMERA, points) + generator.normal(0, 0.5, (4, 2))).tolist()


def test_forceps_batch_with_consensus_and_named_failures(tmp_path: Path) -> None:
    entries: list[dict] = []
    generator = np.random.default_rng(0)
    for polyp, major in (("p1", 60.0), ("p2", 110.0), ("p3", 180.0)):
        for annotator in ("one", "two", "three"):
            x = generator.normal(0, 1.0, 4)
            entries.append(
                {"polyp": polyp, "annotator": annotator, "kind": "proximal", "x1": 100 + x[0], "y1": 100 + x[1],
                 "x2": 200 + x[2], "y2": 100 + x[3], "major_px": major + generator.normal(0, 1.0)}
            )  # fmt: skip
    entries += [{"polyp": "p1", "annotator": f"a{s}", "kind": "extension", "marks": shaft_marks(s)} for s in range(2)]
    entries.append(
        {"polyp": "p9", "annotator": "one", "kind": "proximal", "x1": 5, "y1": 5, "x2": 5, "y2": 6, "major_px": 9}
    )
    path, camera = tmp_path / "marks.json", tmp_path / "camera.json"
    path.write_text(json.dumps(entries))
    camera.write_text(CAMERA.to_json())
    found = forceps(path, camera=camera, out=tmp_path / "out")
    assert found.consensus["p1 (proximal)"].value == pytest.approx(3.0, abs=0.15)
    assert found.consensus["p1 (extension)"].value == pytest.approx(25.0, rel=0.03)
    assert found.exit_code == 1
    assert "entry 12" in found.failures[0]
    assert "tips further apart" in found.failures[0]
    assert (tmp_path / "out" / "consensus.csv").is_file()


def test_simulated_forceps_give_the_true_depth_of_the_apex(tmp_path: Path) -> None:
    points = np.array([1.0, 0.5, 25.0]) + np.arange(4)[:, None] * 5.0 * np.array([0.6, 0.6, -0.52915])
    rows = ["index,kind,point,x_px,y_px,x_mm,y_mm,z_mm,visible"]
    for name, p in zip(("tip", "mark1", "mark2", "mark3"), points, strict=True):
        x, y = cameras.project(CAMERA, p)
        rows.append(f"7,contact,{name},{x},{y},{p[0]},{p[1]},{p[2]},{int(name != 'mark2')}")
    (tmp_path / "forceps.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "camera.json").write_text(CAMERA.to_json())
    found = forceps(tmp_path / "forceps.csv", camera=tmp_path / "camera.json", out=tmp_path / "out")
    assert found.consensus["frame 7 (extension)"].value == pytest.approx(25.0, rel=1e-3)
    # The same contact is a known depth for `analyze`, with the way in which the shaft lies.
    (known,) = read_known_depths(tmp_path / "out" / "contacts.csv")
    assert known.frame == 7
    assert (known.x_px, known.y_px) == pytest.approx(tuple(cameras.project(CAMERA, points[0])))
    assert known.depth_mm == pytest.approx(25.0, rel=1e-3)
    assert known.shaft == pytest.approx((0.6, 0.6, -0.52915), abs=1e-3)


def test_annotators_of_one_contact_are_one_known_depth(tmp_path: Path) -> None:
    entries = [
        {
            "polyp": "p1",
            "annotator": f"a{s}",
            "kind": "extension",
            "marks": shaft_marks(s),
            "frame": 40 if s < 3 else "",
        }
        for s in range(4)
    ]
    path, camera = tmp_path / "marks.json", tmp_path / "camera.json"
    path.write_text(json.dumps(entries))
    camera.write_text(CAMERA.to_json())
    forceps(path, camera=camera, out=tmp_path / "out")
    (known,) = read_known_depths(tmp_path / "out" / "contacts.csv")
    assert known.frame == 40
    assert known.x_px == np.median([entry["marks"][0][0] for entry in entries[:3]])
    path.write_text(json.dumps([{**entry, "frame": None} for entry in entries]))
    forceps(path, camera=camera, out=tmp_path / "without")
    assert not (tmp_path / "without" / "contacts.csv").exists()
    for wrong in (2.5, -1, "inf", "soon"):
        path.write_text(json.dumps([{**entries[0], "frame": wrong}]))
        with pytest.raises(DamagedInput, match=f"entry 1: expected a whole number from 0 on as frame, found {wrong!r}"):
            forceps(path, camera=camera, out=tmp_path / "bad")


def test_forceps_files_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "marks.csv"
    path.write_text("polyp,kind,x1\np,proximal,5\n")
    with pytest.raises(DamagedInput, match="entry 1: expected a number as y1"):
        forceps(path, out=tmp_path / "out")
    path.write_text("polyp,kind\np,sideways\n")
    with pytest.raises(DamagedInput, match="proximal or extension"):
        forceps(path, out=tmp_path / "out")


def test_calibrate_says_when_there_is_no_board(tmp_path: Path) -> None:
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    for i in range(3):
        cv2.imwrite(str(pictures / f"{i}.png"), np.full((90, 90), 60 * i, np.uint8))
    with pytest.raises(InputError, match="found it in none of 3"):
        calibrate(pictures, board="7x6", out=tmp_path / "camera.json")
    with pytest.raises(UsageError, match=r"ending in \.json"):
        calibrate(pictures, board="7x6", out=tmp_path / "camera.txt")
