"""Do simulated frames look like real ones? In numbers and side by side."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["Realism", "realism"]


@dataclass(frozen=True)
class Realism:
    """Bands (10th percentile, median, 90th percentile) by source and statistic, and which real sources hold the median.

    `inside` names, for each statistic, the real sources whose band holds the simulation's median.
    """

    bands: dict[str, dict[str, tuple[float, float, float]]]
    inside: dict[str, list[str]]
    picture: Path

    @property
    def exit_code(self) -> int:
        """1 when a statistic of the simulation is outside the bands of every real source."""
        return 0 if all(self.inside.values()) else 1


def realism(
    out: Path,
    real: list[Path],
    *,
    simulated: Path | None = None,
    frames: int = 150,
    seed: int = 0,
) -> Realism:
    """Compare the look of simulated frames with real ones: colour, contrast, highlights, darkness, gradients.

    Writes realism.png (pictures side by side and the bands of ten statistics) and realism.json into the folder. Exits
    with 1 when a statistic of the simulation lies outside the 10th-90th percentile band of every real folder.

    Parameters
    ----------
    out
        Folder for the results.
    real
        Folders with real frames; sub-folders named masks, depth or instruments are left out.
    simulated
        A simulated data set to judge; without it, fresh clinical sequences are made.
    frames
        Frames to take from each source, evenly.
    seed
        Seed of the fresh sequences.
    """
    import json

    from polypscope.io.images import read_rgb
    from polypscope.records.errors import UsageError
    from polypscope.report.realism import draw_realism
    from polypscope.runtime.console import say, show_table, track
    from polypscope.runtime.runlog import RunLog
    from polypscope.simulator.realism import ROWS, Band, look_statistics, summarise, to_side, within

    if not real or frames < 1:
        raise UsageError("realism: expected a folder with real frames and at least 1 frame, found none; name a folder.")
    label = "simulated"
    files = {_name(folder, real): _pictures_in(folder, frames) for folder in real}
    if simulated is not None:
        files[label] = _pictures_in(simulated, frames)
    with RunLog(out, "datasets realism", {"real": real, "simulated": simulated, "frames": frames, "seed": seed}):
        statistics, shown = {}, {}
        for name, paths in files.items():
            table, examples = [], []
            for i, path in enumerate(track(paths, name, unit="frames")):
                picture = read_rgb(path)
                table.append(look_statistics(picture))
                if i % max(1, len(paths) // 8) == 0:
                    examples.append(to_side(picture))
            statistics[name], shown[name] = table, examples
        if simulated is None:
            statistics[label], shown[label] = _fresh(frames, seed)
        bands = {name: summarise(table) for name, table in statistics.items()}
        inside = within(bands[label], {name: b for name, b in bands.items() if name != label})
        plain = {n: {r: (b[r].low, b[r].middle, b[r].high) for r in ROWS} for n, b in bands.items()}
        picture_path = draw_realism(Path(out) / "realism.png", plain, shown, label)
        text = json.dumps({"bands": plain, "inside": inside}, indent=2) + "\n"
        (Path(out) / "realism.json").write_text(text, encoding="utf-8")

    def cell(band: Band) -> str:
        return f"{band.middle:.2f} ({band.low:.2f}-{band.high:.2f})"

    names = [n for n in bands if n != label]
    rows = [[row, *(cell(bands[n][row]) for n in (*names, label)), ", ".join(inside[row]) or "NONE"] for row in ROWS]
    show_table("Look of frames: median (10th-90th percentile)", ("", *names, label, "median inside"), rows)
    say(f"Side by side: {picture_path}")
    return Realism(plain, inside, picture_path)


def _name(folder: Path, all_folders: list[Path]) -> str:
    same = [f for f in all_folders if Path(f).name == Path(folder).name]
    return Path(folder).name if len(same) == 1 else str(folder)


def _pictures_in(folder: Path, count: int) -> list[Path]:
    """About `count` picture files of a folder, evenly spread over their sorted names."""
    from polypscope.records.errors import MissingInput

    apart = {"masks", "depth", "instruments"}
    found = sorted(
        p
        for p in Path(folder).rglob("*")
        if p.suffix.lower() in (".jpg", ".jpeg", ".png", ".bmp", ".tif")
        and p.stem not in ("fov", "preview")
        and not apart & {part.lower() for part in p.relative_to(folder).parts[:-1]}
    )
    if not found:
        raise MissingInput(f"{folder}: expected a folder with pictures, found none; check the path.")
    step = max(1.0, len(found) / count)
    return [found[int(i * step)] for i in range(min(count, len(found)))]


def _fresh(frames: int, seed: int):  # type: ignore[no-untyped-def]
    """Statistics and eight examples of new clinical sequences: six frames of each."""
    from polypscope.runtime.console import track
    from polypscope.simulator import sequence
    from polypscope.simulator.realism import look_statistics

    table, examples = [], []
    count = max(1, frames // 6)
    for index in track(range(count), "simulated", unit="sequences"):
        made = sequence(seed, index, frames=36, style="clinical", polyps="sampled", fov_deg=(75.0, 125.0))
        for i, item in enumerate(made):
            if i % 6 == 3:
                table.append(look_statistics(item.frame.rgb))
                if i == 15 and index % max(1, count // 8) == 0:
                    examples.append(item.frame.rgb)
    return table, examples
