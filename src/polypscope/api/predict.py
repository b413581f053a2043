"""Probability maps of pictures, folders and videos."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

__all__ = ["Predictions", "predict"]


@dataclass(frozen=True)
class Predictions:
    """What was written."""

    out: Path
    pictures: int
    clips: int
    failures: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """1 when a picture or video could not be read."""
        return 1 if self.failures else 0


def predict(
    input: Path,
    out: Path,
    *,
    model: str | None = None,
    clip: bool = False,
    fast: bool = False,
    batch: int = 4,
    threads: int = 2,
    provider: Literal["cpu", "openvino", "cuda", "coreml", "directml"] = "cpu",
) -> Predictions:
    """Write the polyp probability of every picture as an 8-bit PNG of the same size and name.

    Folders are searched through, and their sub-folders are kept. A video becomes a folder of numbered PNGs, one per
    frame, and is segmented as a stream: each frame with what was seen before it.

    Parameters
    ----------
    input
        A picture, a video, or a folder with either.
    out
        Folder for the results.
    model
        Name of a shipped model or path of an exported .onnx file. If not given, the shipped segmenter for streams, and
        for single pictures the shipped mean of several networks, which is better and slower.
    clip
        The pictures of each folder are consecutive frames of one video: segment them as a stream.
    fast
        Look at single pictures once, with the segmenter for streams. Without it several networks look at them and their
        mirror images, a small finding is looked at again from nearer, and beside the surest finding only sure ones are
        outlined: better outlines in more time. Streams are always looked at once.
    batch
        Single pictures that go through the network at once.
    threads
        Threads of the network.
    provider
        What runs the network; a device that is not there is an error, never a silent fall-back.
    """
    from polypscope.records.errors import UsageError
    from polypscope.runtime.cards import find_card
    from polypscope.runtime.console import progress, say
    from polypscope.runtime.runlog import DISCLAIMER, RunLog
    from polypscope.runtime.segmenter import DEFAULT_SEGMENTER, DEFAULT_STILLS, Segmenter

    if batch < 1:
        raise UsageError(f"--batch: expected at least 1, found {batch}; give the number of pictures at once.")
    streams = model or DEFAULT_SEGMENTER
    stills = model or (DEFAULT_SEGMENTER if clip or fast else DEFAULT_STILLS)
    find_card(stills)  # a model that is not there should be said before anything is searched
    source, out = Path(input), Path(out)
    folders, videos = _gather(source, out)
    _keep_apart(folders, out)
    needed = {name for name, wanted in ((stills, folders), (streams, videos)) if wanted}
    segmenters = {name: Segmenter.load(name, threads, provider) for name in sorted(needed)}
    models = [segmenter.card.name for segmenter in segmenters.values()]
    arguments = {"input": source, "out": out, "model": ", ".join(models), "clip": clip, "fast": fast, "batch": batch}
    failures: list[str] = []
    pictures = clips = 0
    with RunLog(out, "predict", {**arguments, "threads": threads, "provider": provider}) as log:
        for segmenter in segmenters.values():
            log.add_input(segmenter.card.weights_path)
        with progress("predicting", sum(map(len, folders.values())) or None, "pictures") as ticker:
            for folder, paths in folders.items():
                at_once = 1 if clip else batch
                pictures += _stills(segmenters[stills], paths, out / folder, at_once, clip, fast, failures, ticker)
                clips += clip
            for place, path in videos.items():
                pictures += _video(segmenters[streams], path, out / place, failures, log, ticker)
                clips += 1
        log.record(pictures=pictures, clips=clips, failures=failures)
    for failure in failures[:5]:
        say(f"failed: {failure}")
    say(f"{pictures} probability maps in {out}" + (f", {len(failures)} failed" if failures else ""))
    say(DISCLAIMER)
    return Predictions(out, pictures, clips, tuple(failures))


def _gather(source: Path, out: Path) -> tuple[dict[Path, list[Path]], dict[Path, Path]]:
    """Pictures by folder relative to the source, and videos by the folder their maps go to.

    Maps of an earlier run, in a folder inside the source, are no pictures.
    """
    from polypscope.io.images import IMAGE_SUFFIXES
    from polypscope.io.paths import is_hidden, natural_sorted
    from polypscope.records.errors import InputError, MissingInput

    if not source.exists():
        raise MissingInput(f"{source}: expected a picture, a video or a folder, found nothing there; check the path.")
    if source.is_file():
        if source.suffix.lower() in IMAGE_SUFFIXES:
            return {Path(): [source]}, {}
        return {}, {Path(source.stem): source}
    folders: dict[Path, list[Path]] = {}
    videos: dict[Path, Path] = {}
    results = None if out.resolve() == source.resolve() else out.resolve()
    for path in natural_sorted(source.rglob("*"), key=lambda path: path.relative_to(source)):
        inside = path.relative_to(source)
        if not path.is_file() or any(is_hidden(Path(part)) for part in inside.parts):
            continue
        if results is not None and path.resolve().is_relative_to(results):
            continue
        if path.suffix.lower() in IMAGE_SUFFIXES:
            folders.setdefault(inside.parent, []).append(path)
        elif path.suffix.lower() in (".mp4", ".avi", ".mkv", ".mov", ".mpg", ".mpeg", ".webm", ".wmv", ".m4v", ".ts"):
            videos[inside.with_suffix("")] = path
    if not folders and not videos:
        raise InputError(f"{source}: expected pictures or videos in this folder, found none; check the path.")
    return folders, videos


def _keep_apart(folders: dict[Path, list[Path]], out: Path) -> None:
    """Refuse maps that would take the place of a picture, or of each other."""
    from polypscope.records.errors import UsageError

    pictures = {path.resolve() for paths in folders.values() for path in paths}
    made: dict[Path, Path] = {}
    for folder, paths in folders.items():
        for path in paths:
            target = (out / folder / f"{path.stem}.png").resolve()
            if target in pictures:
                raise UsageError(f"{out}: expected a folder apart from the input, found {target} in it; give another.")
            if target in made:
                raise UsageError(
                    f"{path}: expected one picture of this name, found {made[target].name} beside it, whose map would "
                    "have the same name; rename one."
                )
            made[target] = path


def _stills(segmenter, paths, out, batch, clip, fast, failures, ticker) -> int:  # type: ignore[no-untyped-def]
    """Pictures of one folder, one by one as a stream or several at once; returns how many were written."""
    from polypscope.io.images import read_rgb
    from polypscope.io.masks import write_probability
    from polypscope.records.errors import InputError

    segmenter.reset()
    done = 0
    for start in range(0, len(paths), batch):
        read = []
        for path in paths[start : start + batch]:
            try:
                read.append((path, read_rgb(path)))
            except InputError as error:
                failures.append(str(error))
            ticker.step()
        if not read:
            continue
        if clip:
            maps = [segmenter.step(read[0][1])]
        else:
            maps = segmenter.predict_batch([rgb for _, rgb in read], careful=not fast)
        for (path, _), probability in zip(read, maps, strict=True):
            write_probability(out / f"{path.stem}.png", probability)
            done += 1
    return done


def _video(segmenter, path, out, failures, log, ticker) -> int:  # type: ignore[no-untyped-def]
    """One video as a stream; returns how many maps were written."""
    from polypscope.io.masks import write_probability
    from polypscope.io.sources import open_source
    from polypscope.records.errors import InputError

    segmenter.reset()
    done = 0
    try:
        with open_source(path) as source:
            for frame in source:
                write_probability(out / f"{frame.index:06d}.png", segmenter.step(frame.rgb))
                done += 1
                ticker.step()
            for note in source.notes:
                log.add_note(f"{path.name}: {note}")
    except InputError as error:
        failures.append(str(error))
    return done
