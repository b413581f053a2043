"""From what a user names to sources of frames: videos, DICOM videos, folders of either, folders of frames."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from polypscope.io.sources import FrameSource
    from polypscope.records import Camera

__all__ = ["camera_beside", "camera_for", "find_sources", "identity", "open_any", "unique_names"]

_FRAME_FOLDERS = ("rgb", "images", "frames")
_DICOM = frozenset({".dcm", ".dicom"})


def find_sources(named: Sequence[Path | str]) -> list[Path]:
    """Files and folders of frames; a folder that holds videos, or folders of frames, stands for those in it."""
    from polypscope.io.paths import list_files, list_folders, require_folder
    from polypscope.io.video import VIDEO_SUFFIXES
    from polypscope.records.errors import InputError, MissingInput

    found: list[Path] = []
    for path in map(Path, named):
        if not path.exists():
            raise MissingInput(
                f"{path}: expected a video file or a folder of videos or frames, found nothing there; check the path."
            )
        if not path.is_dir():
            found.append(path)
            continue
        require_folder(path)
        videos = list_files(path, VIDEO_SUFFIXES | _DICOM)
        if videos:
            found.extend(videos)
        elif frames := _frames_in(path):
            found.append(frames)
        elif inner := [frames for folder in list_folders(path) if (frames := _frames_in(folder))]:
            found.extend(inner)
        else:
            raise InputError(f"{path}: expected videos or images in this folder, found none; check the path.")
    return found


def _frames_in(folder: Path) -> Path | None:
    """The pictures that a folder stands for: its own, or those of a sequence that holds masks and more beside them."""
    from polypscope.io.images import IMAGE_SUFFIXES
    from polypscope.io.paths import list_files

    for name in _FRAME_FOLDERS:
        if (folder / name).is_dir() and list_files(folder / name, IMAGE_SUFFIXES):
            return folder / name
    return folder if list_files(folder, IMAGE_SUFFIXES) else None


def open_any(path: Path) -> FrameSource:
    """Open a video, a DICOM video or a folder of frames."""
    if path.suffix.lower() in _DICOM or _is_dicom(path):
        from polypscope.io.dicom import DicomSource

        return DicomSource(path)
    from polypscope.io.sources import open_source

    return open_source(path)


def _is_dicom(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as stream:
        return stream.read(132)[128:] == b"DICM"


def camera_beside(path: Path) -> Path | None:
    """A camera file that belongs to a source by its place: in a folder of frames, or beside it, a video or a frame."""
    candidates = [path.with_suffix(".camera.json"), path.parent / "camera.json"]
    if path.parent.name in _FRAME_FOLDERS:
        candidates.append(path.parent.parent / "camera.json")
    if path.is_dir():
        candidates.insert(0, path / "camera.json")
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def camera_for(
    path: Path | None,
    fov: float | None,
    lens: Literal["pinhole", "fisheye"],
    width: int,
    height: int,
    beside: Path | Camera | None = None,
) -> Camera | None:
    """The camera for frames of this size: from a file, from a field of view, or from what lies beside the source."""
    from polypscope.io.camera_file import read_camera
    from polypscope.records import Camera
    from polypscope.records.errors import UsageError
    from polypscope.runtime.console import note

    if path is not None and fov is not None:
        raise UsageError(
            "--camera and --fov: expected one of them, found both; the camera file says the field of view."
        )
    if fov is not None:
        return Camera.from_fov(width, height, fov, lens)
    if path is None and isinstance(beside, Path):
        note(f"using the camera in {beside}.")
        path = beside
    if path is None:
        return beside if isinstance(beside, Camera) else None
    camera = read_camera(path)
    if abs(camera.width * height - camera.height * width) > 0.02 * camera.width * height:
        raise UsageError(
            f"--camera: expected a camera whose picture has the shape of what it took ({width}×{height}), found "
            f"{camera.width}×{camera.height}; calibrate with frames of this recording."
        )
    return camera.resized(width, height)


def identity(path: Path) -> str:
    """A text that is the same for the same content: size and ends of a file, names and sizes of a folder's files."""
    import hashlib

    digest = hashlib.sha256()
    if path.is_dir():
        from polypscope.io.images import IMAGE_SUFFIXES
        from polypscope.io.paths import list_files

        for file in list_files(path, IMAGE_SUFFIXES):
            digest.update(f"{file.name}:{file.stat().st_size}\n".encode())
    else:
        size = path.stat().st_size
        digest.update(str(size).encode())
        with path.open("rb") as stream:
            digest.update(stream.read(1 << 20))
            stream.seek(max(0, size - (1 << 20)))
            digest.update(stream.read())
    return f"{path.name}:{digest.hexdigest()[:32]}"


def unique_names(paths: Sequence[Path]) -> list[str]:
    """A folder name for each source: its stem, with its folder's name where two are alike, and a number at last.

    >>> unique_names([Path("a/x.mp4"), Path("b/x.mp4"), Path("b/x.avi"), Path("y.avi")])
    ['a-x', 'b-x', 'b-x-2', 'y']
    >>> unique_names([Path("set/seq1/rgb"), Path("set/seq2/rgb")])
    ['seq1', 'seq2']
    """
    names: list[str] = []
    taken: set[str] = set()
    named = [path.parent if path.name in _FRAME_FOLDERS and path.parent.name else path for path in paths]
    stems = [path.name if path.is_dir() or not path.suffix else path.stem for path in named]
    for path, stem in zip(named, stems, strict=True):
        base = f"{path.parent.name}-{stem}" if stems.count(stem) > 1 and path.parent.name else stem
        name, n = base, 1
        while name.lower() in taken:
            n += 1
            name = f"{base}-{n}"
        taken.add(name.lower())
        names.append(name)
    return names
