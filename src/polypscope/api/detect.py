"""The challenge's hand-crafted and hybrid methods, run on pictures, folders and videos."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from polypscope.runtime.runlog import RunLog

__all__ = ["Detected", "detect"]


@dataclass(frozen=True)
class Detected:
    """What was written."""

    out: Path
    frames: int
    detections: int
    failures: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """1 when a picture or video could not be read."""
        return 1 if self.failures else 0


def detect(
    input: Path,
    out: Path,
    *,
    method: str = "cvc-clinic",
    trained: Path | None = None,
    most: int | None = None,
    least: float = 0.0,
    maps: Path | None = None,
) -> Detected:
    """Find polyps by a hand-crafted or hybrid method of the MICCAI 2015 challenge, and write them as CSV.

    The CSV has a row (frame, x, y, score) per location, best first, and a column video where several videos or folders
    were given; `polypscope evaluate detection TRUTH OUT.csv` scores it. A frame is named as its picture is, or numbered
    from 0 in a video. The methods are here to be compared with; `polypscope analyze` has a better F1.

    cvc-clinic: hand-crafted; valleys around a protruding surface vote for its centre (WM-DOVA).
    etis-larib: hybrid; round shapes of a polyp's size, then their texture; is trained first.
    pls: hybrid; presence by similar pictures, four places by elliptical contrast; is trained first.
    asu: hybrid; edges of polyps vote for what they surround, small networks judge it; is trained first.

    To train one: `polypscope train` with a recipe of kind "detector".

    Parameters
    ----------
    input
        A picture, a video, a folder of pictures or videos, or a folder of such folders. Where pictures lie in a folder
        images, frames or rgb beside their masks, only they are looked at.
    out
        The CSV file to write; run.json is written beside it.
    method
        Name of the method.
    trained
        The .npz that training wrote, for a method that learns; none ships.
    most
        Keep at most so many locations per frame, the best; as many as the method gives if not given.
    least
        Leave out locations with a lower score, from 0 to 1.
    maps
        Folder for the energy maps as 8-bit PNG, laid out as `polypscope evaluate detection` reads them (for the
        concentration ratio).
    """
    from polypscope.io.detections_stream import DetectionsStream
    from polypscope.io.masks import write_probability
    from polypscope.methods.registry import load_method
    from polypscope.pipeline.inputs import find_sources, unique_names
    from polypscope.records import ProbabilityMap
    from polypscope.records.errors import UsageError
    from polypscope.runtime.console import progress, say
    from polypscope.runtime.runlog import DISCLAIMER, RunLog

    out = Path(out)
    if out.suffix.lower() != ".csv":
        raise UsageError(f"out: expected a name ending in .csv, found {out}; for example {method}.csv.")
    if most is not None and most < 1:
        raise UsageError(f"--most: expected at least 1, found {most}; give the number of locations per frame.")
    if not 0 <= least <= 1:
        raise UsageError(f"--least: expected a score from 0 to 1, found {least:g}; give the lowest score to keep.")
    look = load_method(method, trained)
    if maps is not None and not look.has_map:
        raise UsageError(f"--maps: expected a method with an energy map, found {method}, which has none; leave it out.")
    sources = find_sources([input])
    names = unique_names(sources)
    folders = [None if maps is None else maps / name if len(sources) > 1 else maps for name in names]
    _keep_apart(sources, folders)
    failures: list[str] = []
    frames = detections = 0
    arguments = {"input": input, "out": out, "method": method, "trained": trained, "most": most, "least": least}
    with (
        RunLog(out.parent, "detect", {**arguments, "maps": maps}) as log,
        DetectionsStream(out, videos=len(sources) > 1) as stream,
        progress("detecting", _count(sources), "frames") as ticker,
    ):
        if trained is not None:
            log.add_input(trained)
        for source, name, folder in zip(sources, names, folders, strict=True):
            for frame, rgb in _frames(source, failures, log):
                seen = look.look(rgb)
                kept = [d for d in seen.detections if d.score is None or d.score >= least][:most]
                stream.write(name, frame, kept)
                if folder is not None:
                    file = f"{frame:06d}" if isinstance(frame, int) else frame
                    write_probability(folder / f"{file}.png", ProbabilityMap(seen.energy))
                frames += 1
                detections += len(kept)
                ticker.step()
        log.record(frames=frames, detections=detections, failures=failures)
    for failure in failures[:5]:
        say(f"failed: {failure}")
    say(f"{detections} locations in {frames} frames: {out}" + (f", {len(failures)} failed" if failures else ""))
    say(DISCLAIMER)
    return Detected(out, frames, detections, tuple(failures))


def _keep_apart(sources: list[Path], folders: list[Path | None]) -> None:
    """Refuse to write maps where pictures are read: a map has its frame's name, and would take its place."""
    from polypscope.io.images import IMAGE_SUFFIXES
    from polypscope.records.errors import UsageError

    read = {source.resolve() for source in sources if source.is_dir()}
    read |= {source.resolve().parent for source in sources if source.suffix.lower() in IMAGE_SUFFIXES}
    for folder in folders:
        if folder is not None and folder.resolve() in read:
            raise UsageError(
                f"--maps: expected a folder of its own, found {folder}, which holds the input; give another."
            )


def _count(sources: list[Path]) -> int | None:
    """Frames in all, where no video has to be opened to know."""
    from polypscope.io.images import IMAGE_SUFFIXES
    from polypscope.io.paths import list_files

    total = 0
    for source in sources:
        if source.is_dir():
            total += len(list_files(source, IMAGE_SUFFIXES))
        elif source.suffix.lower() in IMAGE_SUFFIXES:
            total += 1
        else:
            return None
    return total


def _frames(source: Path, failures: list[str], log: RunLog) -> Iterator[tuple[int | str, object]]:
    """(name or index, RGB) of each frame; what cannot be read is added to `failures` and left out."""
    from polypscope.io.images import IMAGE_SUFFIXES, read_rgb
    from polypscope.io.paths import list_files
    from polypscope.methods.method import check_frame
    from polypscope.pipeline.inputs import open_any
    from polypscope.records.errors import InputError, RecordError

    if source.is_dir() or source.suffix.lower() in IMAGE_SUFFIXES:
        for path in list_files(source, IMAGE_SUFFIXES) if source.is_dir() else [source]:
            try:
                rgb = read_rgb(path)
                check_frame(rgb)
            except InputError as error:
                failures.append(str(error))
                continue
            except RecordError as error:
                failures.append(f"{path}: {error}")
                continue
            yield path.stem, rgb
        return
    try:
        with open_any(source) as video:
            for frame in video:
                check_frame(frame.rgb)
                yield frame.index, frame.rgb
            for text in video.notes:
                log.add_note(f"{source.name}: {text}")
    except InputError as error:
        failures.append(str(error))
    except RecordError as error:
        failures.append(f"{source}: {error}")
