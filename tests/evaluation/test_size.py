"""Size scores by hand, with the constant predictor beside them; the propagation table on shapes that are known."""

from __future__ import annotations

import numpy as np
import pytest

from polypscope.evaluation import polypsense3d, size
from polypscope.evaluation.propagation import CELLS, PolypView, propagate
from polypscope.geometry import cameras
from polypscope.records import BinaryMask, Camera, DepthKind, DepthMap
from polypscope.records.errors import RecordError


def rows() -> list[size.SizeRow]:
    data = [
        ("p1", 4.0, 4.5, (3.5, 5.5)),
        ("p2", 5.0, 5.2, (4.9, 5.1)),
        ("p3", 9.0, 11.0, (8, 13)),
        ("p4", 12.0, 9.0, (8, 11)),
    ]
    return [size.SizeRow(n, t, {"estimated": e}, i) for n, t, e, i in data]


def test_scores_by_hand() -> None:
    found = size.evaluate(rows()).column("estimated")
    assert found.mae_mm == pytest.approx((0.5 + 0.2 + 2 + 3) / 4)
    assert found.bias_mm == pytest.approx((0.5 + 0.2 + 2 - 3) / 4)
    assert found.median_relative == pytest.approx((0.125 + 2 / 9) / 2)
    assert found.within_20_percent == 0.5
    assert found.bin_accuracy == 0.25
    assert found.missed_10_mm == 1.0
    assert found.coverage == 0.75
    assert found.confusion == ((1, 1, 0), (0, 0, 1), (0, 1, 0))


def test_the_constant_predictor_is_always_the_last_column() -> None:
    result = size.evaluate(rows())
    constant = result.columns[-1]
    assert constant.column == "constant"
    assert constant.mae_mm == pytest.approx(np.mean(np.abs(np.array([4, 5, 9, 12]) - 7.0)))


def test_columns_may_be_incomplete() -> None:
    more = [*rows(), size.SizeRow("p5", 6.0, {"doctors": 7.0})]
    result = size.evaluate(more)
    assert result.column("estimated").polyps == 4
    assert result.column("doctors").polyps == 1
    assert result.columns[-1].polyps == 5


def test_coverage_stays_with_the_measured_column_when_the_first_polyp_lacks_it() -> None:
    lost = size.SizeRow("p0", 6.0, {"doctors": 7.0})
    both = [size.SizeRow(r.polyp, r.true_mm, {**r.estimates_mm, "doctors": 5.0}, r.interval_mm) for r in rows()]
    result = size.evaluate([lost, *both])
    assert [column.column for column in result.columns] == ["estimated", "doctors", "constant"]
    assert result.column("estimated").coverage == 0.75
    assert np.isnan(result.column("doctors").coverage)


def test_polyps_that_no_frame_showed_whole_are_scored_and_also_left_out() -> None:
    known = [
        size.SizeRow("a", 10.0, {"main": 9.0, "other": 10.0}, (8.0, 11.0)),
        size.SizeRow("b", 10.0, {"main": 4.0, "other": 10.0}, (3.0, 6.0), flags=("few_frames", "truncated")),
        size.SizeRow("c", 5.0, {"main": 5.5}, (5.1, 6.0), flags=("oblique",)),
        size.SizeRow("d", 5.0, {"other": 5.0}, flags=("occluded",)),
    ]
    result = size.evaluate(known)
    assert [c.column for c in result.lines] == ["main", "main, seen whole", "other", "constant"]
    assert result.whole is not None
    assert result.whole.polyps == 2
    assert result.whole.mae_mm == pytest.approx(0.75)
    assert result.whole.coverage == pytest.approx(0.5)
    assert result.column("main").mae_mm == pytest.approx(2.5)
    assert size.evaluate(known[::2]).whole is None  # nothing to leave out
    assert size.evaluate(known[1:2]).whole is None  # nothing would be left


@pytest.mark.parametrize(
    ("mm", "clinical", "paper"), [(5.0, 0, 0), (5.01, 1, 0), (10.0, 2, 1), (20.0, 2, 1), (20.1, 2, 2)]
)
def test_bounds_of_the_classes(mm: float, clinical: int, paper: int) -> None:
    assert size.CLINICAL.of(mm) == clinical
    assert size.PAPER.of(mm) == paper


def test_nothing_and_nonsense_are_refused() -> None:
    with pytest.raises(RecordError, match="at least one polyp"):
        size.evaluate([])
    with pytest.raises(RecordError, match="above 0"):
        size.evaluate([size.SizeRow("p", 0.0, {"a": 1.0})])


def test_published_tables_are_whole_and_say_what_is_wrong() -> None:
    assert len(polypsense3d.TABLE_3.rows) == 21
    last = [r for r in polypsense3d.TABLE_3.rows if r["method"] == "SAM2-UNet"]
    assert [(r["data_set"], r["dice"]) for r in last] == [
        ("virtual", 0.9399),
        ("phantom", 0.8983),
        ("clinical", 0.7346),
    ]
    assert last[0]["printed_as"] == "Physical"
    average = polypsense3d.TABLE_8.rows[-1]
    assert (average["pm_pd_error"], average["doctor_error"]) == (0.95, 1.84)
    assert any("4.95" in text for text in polypsense3d.INCONSISTENCIES)


CAMERA = Camera.from_fov(120, 120, 78.4)


def dome(radius: float, distance: float) -> tuple[BinaryMask, DepthMap]:
    """A half ball on a wall, seen from above."""
    r = cameras.rays(CAMERA).reshape(-1, 3)
    b = r[:, 2] * distance
    disc = b**2 - distance**2 + radius**2
    ball = np.where(disc > 0, b - np.sqrt(np.maximum(disc, 0)), np.inf)
    wall = distance / r[:, 2]
    z = (np.minimum(ball, wall) * r[:, 2]).astype(np.float32).reshape(120, 120)
    return BinaryMask((ball < wall).reshape(120, 120)), DepthMap(z, DepthKind.Z_MM)


def views(depth_scale: float, grow: int) -> list[PolypView]:
    from scipy import ndimage

    out = []
    for i, radius in enumerate((2.0, 3.0, 4.0, 5.0)):
        for distance in (18.0, 22.0, 26.0):
            mask, depth = dome(radius, distance)
            wrong = BinaryMask(ndimage.binary_dilation(mask.values, iterations=grow) if grow else mask.values)
            predicted = DepthMap(depth.values * np.float32(depth_scale), DepthKind.Z_MM)
            out.append(PolypView(f"p{i}", 2 * radius, CAMERA, mask, depth, wrong, predicted, doctor_mm=2 * radius + 1))
    return out


def test_a_wrong_scale_shows_in_the_depth_cells_only_and_the_oracle_removes_it() -> None:
    found = propagate(views(1.3, 0)).sizes
    assert found.column("true mask, true depth").mae_mm < 0.35
    assert found.column("predicted mask, true depth").mae_mm < 0.35
    # Size is linear in depth: compared with the same map at its right scale, every estimate grows by that scale.
    right = {row.polyp: row.estimates_mm for row in propagate(views(1.0, 0)).sizes.rows}
    for name in ("true mask, predicted depth", "predicted mask, predicted depth"):
        for row in found.rows:
            assert row.estimates_mm[name] / right[row.polyp][name] == pytest.approx(1.3, abs=0.02)
    assert found.column("true mask, oracle scale").mae_mm < 0.5
    assert found.column("doctors").mae_mm == pytest.approx(1.0)
    assert found.columns[-1].column == "constant"


def test_the_border_of_a_predicted_map_from_a_file_does_not_count() -> None:
    from dataclasses import replace

    from scipy import ndimage

    def bled(view: PolypView) -> PolypView:
        inside = view.true_mask.values
        rim = inside & ~ndimage.binary_erosion(inside) & (np.arange(inside.shape[1]) > inside.shape[1] // 2)
        values = np.where(rim, 1.03 * view.true_depth.values, view.true_depth.values).astype(np.float32)
        return replace(view, predicted_depth=DepthMap(values, DepthKind.Z_MM))

    clear = views(1.0, 0)
    told, expected = propagate([bled(view) for view in clear]).sizes, propagate(clear).sizes
    for row, other in zip(told.rows, expected.rows, strict=True):
        name = "true mask, predicted depth"
        assert row.estimates_mm[name] == pytest.approx(other.estimates_mm[name], rel=0.02)


def test_a_wrong_mask_shows_in_the_mask_cells_only() -> None:
    found = propagate(views(1.0, 3)).sizes
    # One border pixel of a predicted map is not used, which costs a small dome a few percent.
    assert found.column("true mask, predicted depth").mae_mm < 0.5
    assert found.column("predicted mask, true depth").bias_mm > 0.5


def test_what_was_not_predicted_is_listed_as_lost() -> None:
    bare = [PolypView(v.polyp, v.true_mm, v.camera, v.true_mask, v.true_depth, None, None) for v in views(1.0, 0)]
    found = propagate(bare)
    assert set(found.sizes.column("true mask, true depth").confusion) != set()
    assert found.lost["predicted mask, predicted depth"] == ("p0", "p1", "p2", "p3")
    assert set(found.lost) == set(CELLS)
