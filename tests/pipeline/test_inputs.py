"""What a user names becomes sources: files, folders of videos, folders of frames, sequences of a data set."""

from __future__ import annotations

from pathlib import Path

import pytest

from polypscope.pipeline.inputs import camera_beside, camera_for, find_sources, identity, unique_names
from polypscope.records import Camera
from polypscope.records.errors import DamagedInput, InputError, MissingInput, UsageError


def _touch(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")


@pytest.mark.parametrize(
    ("files", "named", "expected"),
    [
        (["a.mp4"], ["a.mp4"], ["a.mp4"]),
        (["v/b10.mp4", "v/b9.mov", "v/notes.txt"], ["v"], ["v/b9.mov", "v/b10.mp4"]),
        (["f/1.png", "f/2.png"], ["f"], ["f"]),
        (["set/s1/rgb/0.jpg", "set/s1/depth/0.png", "set/s1/fov.png", "set/s2/rgb/0.jpg"], ["set"],
         ["set/s1/rgb", "set/s2/rgb"]),
        (["set/s1/images/0.png", "set/s1/masks/0.png"], ["set/s1"], ["set/s1/images"]),
        (["a.mp4", "d/b.dcm"], ["a.mp4", "d"], ["a.mp4", "d/b.dcm"]),
    ],
)  # fmt: skip
def test_sources(files: list[str], named: list[str], expected: list[str], tmp_path: Path) -> None:
    _touch(tmp_path, *files)
    found = find_sources([tmp_path / name for name in named])
    assert [str(path.relative_to(tmp_path)) for path in found] == expected


def test_nothing_there_and_nothing_in_it(tmp_path: Path) -> None:
    with pytest.raises(MissingInput, match="nothing there"):
        find_sources([tmp_path / "absent"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="found none"):
        find_sources([tmp_path / "empty"])


def test_camera_and_name_of_a_sequence(tmp_path: Path) -> None:
    _touch(tmp_path, "set/s1/rgb/0.jpg", "set/s1/camera.json", "a.mp4", "a.camera.json")
    assert camera_beside(tmp_path / "set/s1/rgb") == tmp_path / "set/s1/camera.json"
    assert camera_beside(tmp_path / "set/s1/rgb/0.jpg") == tmp_path / "set/s1/camera.json"
    assert camera_beside(tmp_path / "a.mp4") == tmp_path / "a.camera.json"
    assert unique_names([tmp_path / "set/s1/rgb"]) == ["s1"]


def test_a_camera_comes_from_a_file_or_a_field_of_view(tmp_path: Path) -> None:
    path = tmp_path / "camera.json"
    known = Camera(640, 480, 500, 500, 320, 240)
    path.write_text(known.to_json())
    assert camera_for(path, None, "pinhole", 320, 240) == known.resized(320, 240)
    assert camera_for(None, None, "pinhole", 320, 240, beside=path) == known.resized(320, 240)
    assert camera_for(None, 90.0, "fisheye", 320, 240, beside=path) == Camera.from_fov(320, 240, 90.0, "fisheye")
    assert camera_for(None, None, "pinhole", 320, 240) is None
    with pytest.raises(UsageError, match="one of them"):
        camera_for(path, 90.0, "pinhole", 320, 240)
    with pytest.raises(UsageError, match=r"shape of what it took \(320×320\), found 640×480"):
        camera_for(path, None, "pinhole", 320, 320)


@pytest.mark.parametrize(
    ("content", "kind", "words"),
    [
        (None, MissingInput, "calibrate"),
        (b"\x89PNG", DamagedInput, "expected text in UTF-8, found another encoding or no text at all"),
        (b"fx = 500", DamagedInput, "expected JSON text"),
        (b"[1]", DamagedInput, 'expected an object with "format": "polypscope-camera", found list'),
        (b'{"format": "colmap"}', DamagedInput, "found format 'colmap'"),
    ],
)
def test_a_camera_file_that_is_none_is_named(
    content: bytes | None, kind: type[InputError], words: str, tmp_path: Path
) -> None:
    path = tmp_path / "camera.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(kind, match=words) as found:
        camera_for(path, None, "pinhole", 320, 240)
    assert str(found.value).startswith(str(path))


def test_identity_follows_the_content(tmp_path: Path) -> None:
    path = tmp_path / "a.mp4"
    path.write_bytes(b"abc" * 1000)
    before = identity(path)
    assert identity(path) == before
    path.write_bytes(b"abd" * 1000)
    assert identity(path) != before
