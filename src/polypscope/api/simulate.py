"""Simulated colonoscopy with exact truth."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

__all__ = ["Simulation", "simulate"]


@dataclass(frozen=True)
class Simulation:
    """What a run of the simulator left behind."""

    root: Path
    sequences: tuple[str, ...]
    frames: int
    failures: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """1 when a sequence could not be made."""
        return 1 if self.failures else 0


def simulate(
    out: Path,
    *,
    frames: int = 100,
    sequences: int = 1,
    seed: int = 0,
    size: str = "320x320",
    fov: str = "78.4",
    lens: Literal["pinhole", "fisheye"] = "pinhole",
    style: Literal["clean", "clinical"] = "clean",
    forceps: Literal["none", "proximal", "contact"] = "none",
    polyps: Literal["models", "sampled"] = "models",
    negatives: float = 0.15,
    fov_shape: Literal["random", "none", "octagon", "circle"] = "random",
    mesh: Path | None = None,
    centerline: Path | None = None,
    centerline_mm: float | None = None,
    preview: bool = False,
    jobs: int = 1,
) -> Simulation:
    """Simulate colonoscopy sequences with exact masks, depth, poses and sizes in mm.

    Writes the PolypSense3D layout: every later command reads it. The same seed gives the same files, whatever the
    number of jobs; running the same command again goes on where an interrupted run stopped.

    Parameters
    ----------
    out
        Folder for the data set: new, empty, or a run of the same command to go on with.
    frames
        Frames per sequence, at 25 per second.
    sequences
        Number of sequences. Four neighbours share one colon.
    seed
        Fixes everything that is random.
    size
        Picture size in pixels, width x height.
    fov
        Horizontal field of view in degrees, or a range such as 70:120 from which each sequence draws.
    lens
        Lens model: pinhole, or fisheye (equidistant) as in real colonoscopes.
    style
        clean: the exact picture; clinical: with blur, noise, over-exposure, residue, overlay text and JPEG.
    forceps
        proximal: open jaws of 5 mm beside the polyp; contact: a shaft with 5 mm marks that touches its apex.
    polyps
        models: the thirty polyps of the virtual set; sampled: new ones for every sequence.
    negatives
        Share of sequences without a polyp.
    fov_shape
        Black surround of the picture.
    mesh
        CT surface (.vtk, .obj, .stl) to use instead of procedural colons; needs --centerline.
    centerline
        Its centreline: points as JSON or CSV, from the anus on.
    centerline_mm
        Real length of the whole centreline in mm, which sets the scale of both files. Without it they are taken to be
        in mm. The mean colorectal length at CT colonography is 1895 mm.
    preview
        Also write preview.png (pictures, depth, outlines, sizes) and preview.mp4.
    jobs
        Processes that work side by side; -1 uses every core.
    """
    from functools import partial

    from polypscope.runtime.console import say
    from polypscope.runtime.jobs import run_jobs
    from polypscope.runtime.runlog import RunLog
    from polypscope.simulator.preview import write_preview
    from polypscope.simulator.sequence import Settings, geometry_of
    from polypscope.simulator.writer import begin_dataset, finish_dataset, is_written, sequence_name

    width, height = _pair(size, "x", "size", "width x height in pixels, for example 320x320", int)
    low, high = _pair(fov if ":" in fov else f"{fov}:{fov}", ":", "fov", "degrees, for example 78.4 or 70:120", float)
    settings = Settings(
        frames=frames,
        width=width,
        height=height,
        fov_deg=(low, high),
        lens=lens,
        style=style,
        fov_shape=fov_shape,
        polyps=polyps,
        negatives=negatives,
        forceps=forceps,
        mesh=None if mesh is None else str(mesh),
        centerline=None if centerline is None else str(centerline),
        centerline_mm=centerline_mm,
    )
    _at_least(sequences, 1, "sequences")
    _at_least(seed, 0, "seed")
    root = Path(out)
    geometry_of(settings, seed, 0)  # a mesh that does not serve is refused before anything is written
    begin_dataset(root, seed, settings)
    arguments = {"out": out, "sequences": sequences, "seed": seed, "jobs": jobs, **vars(settings)}
    with RunLog(root, "simulate", arguments) as log:
        missing = [i for i in range(sequences) if not is_written(root, i)]
        if len(missing) < sequences:
            log.add_note(f"{sequences - len(missing)} sequences were there already")
        make = partial(_make, seed=seed, settings=settings, root=str(root))
        results = run_jobs(
            make, missing, names=[sequence_name(i) for i in missing], jobs=jobs, label="simulating", unit="sequences"
        )
        names = finish_dataset(root)
        failures = tuple(f"{f.name}: {f.sentence}" for f in results.failures)
        if preview and names:
            write_preview(root, names)
        log.record(sequences_written=len(results.good), frames=len(names) * frames, failures=list(failures))
    say(f"{len(names)} sequences with {len(names) * frames} frames in {root}")
    for failure in failures[:5]:
        say(f"failed: {failure}")
    return Simulation(root, tuple(names), len(names) * frames, failures)


def _make(index: int, *, seed: int, settings: object, root: str) -> str:
    from polypscope.simulator.sequence import Settings, sequence
    from polypscope.simulator.writer import write_sequence

    assert isinstance(settings, Settings)
    return str(write_sequence(sequence(seed, index, settings), Path(root))["name"])


def _at_least(value: int, least: int, name: str) -> None:
    from polypscope.records.errors import UsageError

    if value < least:
        raise UsageError(f"--{name}: expected {least} or more, found {value}; give a whole number.")


def _pair(text: str, mark: str, name: str, expected: str, kind: type) -> tuple[float, float]:
    """Two numbers with a mark between them."""
    from polypscope.records.errors import UsageError

    first, _, second = text.lower().partition(mark)
    try:
        return kind(first), kind(second)
    except ValueError:
        raise UsageError(f"--{name}: expected {expected}, found {text!r}; write it like that.") from None
