"""Every method through one test: what `polypscope detect` relies on."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from scenes_of_mucosa import bright_disk, flat, mucosa

from polypscope.methods.method import Method
from polypscope.methods.registry import METHODS, find_trainer, load_method
from polypscope.records.errors import UsageError


def _pictures() -> list[tuple[np.ndarray, np.ndarray]]:
    """Disks of several places, and as many pictures without."""
    y, x = np.mgrid[:250, :310]
    out = []
    for seed in range(6):
        place = (110 + 10 * seed, 100 + 5 * seed)
        out.append((bright_disk(310, 250, place, 42, seed=seed), np.hypot(x - place[0], y - place[1]) < 42))
        uneven = (1 + 0.25 * np.sin(x / 15 + seed)).astype(np.float32)
        out.append((mucosa(310, 250, seed=20 + seed, shade=uneven), np.zeros((250, 310), bool)))
    return out


@pytest.fixture(scope="module", params=METHODS)
def method(request: pytest.FixtureRequest) -> Method:
    """Each method, trained on drawn pictures if it has to be."""
    entry = METHODS[request.param]
    return find_trainer(request.param)(_pictures()) if entry.trains else load_method(request.param)


def test_a_method_gives_detections_inside_the_frame_best_first(method: Method) -> None:
    rgb = bright_disk(310, 250, (120, 110), 42)
    before = rgb.copy()
    look = method.look(rgb)
    assert np.array_equal(rgb, before)
    assert look.detections
    scores = [d.score for d in look.detections if d.score is not None]
    assert len(scores) in (0, len(look.detections))
    assert scores == sorted(scores, reverse=True)
    for found in look.detections:
        x, y = found.point_xy
        assert 0 <= x <= 309
        assert 0 <= y <= 249
    assert method.has_map == (look.energy is not None)
    if look.energy is not None:
        assert look.energy.shape == (250, 310)
        assert look.energy.dtype == np.float32
        assert 0 <= look.energy.min() <= look.energy.max() <= 1
    again = method(rgb)
    assert [d.point_xy for d in again] == [d.point_xy for d in look.detections]


def test_a_tiny_or_black_frame_is_no_trouble(method: Method) -> None:
    assert method(flat(64, 48, 0)) == ()
    method(flat(9, 8, 100))


def test_names_forgive_capitals_and_an_unknown_one_lists_all() -> None:
    assert load_method("CVC_Clinic")
    with pytest.raises(UsageError) as error:
        load_method("nonesuch")
    lines = str(error.value).splitlines()
    assert lines[0].endswith("found 'nonesuch'; choose one of these:")
    assert [line.split()[0] for line in lines[1:]] == list(METHODS)
    with pytest.raises(UsageError, match="did you mean cvc-clinic"):
        load_method("cvc-clinc")


def test_the_list_of_methods_needs_no_heavy_library() -> None:
    code = (
        "import sys, polypscope.methods.registry;"
        "print(sorted({'cv2', 'numba', 'scipy', 'torch', 'sklearn'} & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"
