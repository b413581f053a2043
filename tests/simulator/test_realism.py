"""Statistics of a picture whose statistics are known, and the comparison command end to end."""

import json

import cv2
import numpy as np
import pytest

from polypscope.api.realism import realism
from polypscope.records.errors import MissingInput
from polypscope.simulator.realism import ROWS, Band, field_of_view, look_statistics, summarise, within


def octagon(colour=(150, 100, 75)):
    """A plain picture at 320 px with a black surround, a dark square and a white one."""
    picture = np.zeros((320, 320, 3), np.uint8)
    x, y = np.meshgrid(np.arange(320) - 159.5, np.arange(320) - 159.5)
    inside = (np.abs(x) < 140) & (np.abs(y) < 140) & (np.abs(x) + np.abs(y) < 210)
    picture[inside] = colour
    return picture, inside


def test_statistics_of_a_known_picture():
    picture, inside = octagon()
    picture[100:120, 100:120] = 5
    picture[200:210, 150:170] = 255
    found = dict(zip(ROWS, look_statistics(picture), strict=True))
    area = field_of_view(picture).sum()
    assert area == pytest.approx(inside.sum(), rel=0.06)
    assert found["highlights %"] == pytest.approx(100 * 200 / area, rel=0.01)
    assert found["dark %"] == pytest.approx(100 * 400 / area, rel=0.01)
    assert found["red"] == pytest.approx((150 * (area - 600) + 5 * 400 + 255 * 200) / area, rel=0.01)
    assert found["gradient median"] == 0.0


def test_the_dark_lumen_belongs_to_the_view_and_the_surround_does_not():
    picture, inside = octagon()
    picture[130:200, 130:200] = 3
    seen = field_of_view(picture)
    assert seen[160, 160]
    assert not seen[2, 2]
    assert (seen & ~inside).sum() == 0


def test_within_names_the_sources_whose_band_holds_the_median():
    narrow = {row: Band(0.0, 1.0, 2.0) for row in ROWS}
    wide = {row: Band(0.0, 5.0, 9.0) for row in ROWS}
    simulated = {row: Band(2.0, 3.0, 4.0) for row in ROWS}
    assert set(map(tuple, within(simulated, {"narrow": narrow, "wide": wide}).values())) == {("wide",)}


def test_bands_are_quantiles():
    table = [np.full(len(ROWS), float(k)) for k in range(11)]
    assert summarise(table)["red"] == Band(1.0, 5.0, 9.0)


def test_the_command_judges_a_folder_and_draws_it(tmp_path):
    rng = np.random.default_rng(0)
    for name, shade in (("real", 0), ("sim", 60)):
        (tmp_path / name / "masks").mkdir(parents=True)
        for i in range(4):
            picture, inside = octagon()
            picture[inside] = np.clip(picture[inside] - shade + rng.normal(0, 5, (inside.sum(), 3)), 0, 255)
            cv2.imwrite(str(tmp_path / name / f"{i}.png"), picture[..., ::-1])
        cv2.imwrite(str(tmp_path / name / "masks" / "0.png"), np.zeros((4, 4), np.uint8))
    same = realism(tmp_path / "a", [tmp_path / "real"], simulated=tmp_path / "real", frames=10)
    assert same.exit_code == 0
    other = realism(tmp_path / "b", [tmp_path / "real"], simulated=tmp_path / "sim", frames=10)
    assert other.exit_code == 1
    assert other.inside["red"] == []
    assert json.loads((tmp_path / "b" / "realism.json").read_text())["inside"]["red"] == []
    assert cv2.imread(str(other.picture)).shape[1] > 800
    with pytest.raises(MissingInput, match="expected a folder with pictures"):
        realism(tmp_path / "c", [tmp_path / "nothing"], frames=1)
