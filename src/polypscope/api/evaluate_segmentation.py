"""The segmentation benchmark: folders of truth and predictions in, scores, curves, a leaderboard and a report out."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from polypscope.datasets.mask_folders import Problem, TruthClip
    from polypscope.evaluation.segmentation import ClipScores, PairedClip, Spec
    from polypscope.report.segmentation import Benchmark

__all__ = ["SegmentationScores", "evaluate_segmentation"]

_STILLS_PER_JOB = 256


@dataclass(frozen=True)
class SegmentationScores:
    """Scores by method and subset, and what was odd about the files.

    scores: method -> subset -> measure -> value. files: what was written, by name.
    """

    protocol: str
    scores: dict[str, dict[str, dict[str, float]]]
    problems: dict[str, tuple[str, ...]]
    files: dict[str, Path] = field(default_factory=dict)
    failures: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """1 when a clip could not be scored at all."""
        return 1 if self.failures else 0


def evaluate_segmentation(
    truth: Path,
    predictions: list[Path],
    *,
    protocol: Literal["sunseg", "stills", "polypsense3d"] = "sunseg",
    out: Path | None = None,
    name: list[str] | None = None,
    attributes: Path | None = None,
    measures: Literal["headline", "toolbox"] = "headline",
    outlines: bool = True,
    replicates: int = 2000,
    seed: int = 0,
    strict: bool = False,
    jobs: int = 1,
) -> SegmentationScores:
    """Score predicted masks by the SUN-SEG, still-image or PolypSense3D protocol.

    Truth and predictions are folders of 8-bit images with the same frame names: `GT/<clip>/*.png` (SUN-SEG, with or
    without its Test…Dataset/Seen levels), `<clip>/*.png`, or `masks/*.png`. Predictions mirror the truth without the GT
    level. Several prediction folders, or one that holds several, are ranked side by side with published results.

    Parameters
    ----------
    truth
        Folder of masks.
    predictions
        Folders of predicted grey maps, one per method (or one folder that holds one per method).
    protocol
        sunseg: clips, first and last frame dropped, 256 thresholds. stills: every image counts once. polypsense3d:
        cut at 0.5, per image and pooled.
    out
        Folder for frames.parquet, clips.csv, summary.json, tables, curves and report.html. Without it, scores are
        only printed.
    name
        Names of the methods, in the order of the prediction folders; folder names without it.
    attributes
        CSV or JSON with the visual attributes of each clip (attributes.csv beside the truth is found by itself).
    measures
        headline: the measures that the protocol's paper prints. toolbox: the toolbox's full list.
    outlines
        Also compute boundary F and Hausdorff-95, which are in no published protocol.
    replicates
        Bootstrap replicates of the intervals, which resample whole cases; 0 leaves intervals and tests out.
    seed
        Fixes the resampling.
    strict
        Make every oddity a failure: stray files, missing, extra, unreadable, resized or empty predictions.
    jobs
        Processes; -1 uses every core.
    """
    import sys
    from dataclasses import replace

    from polypscope.datasets.mask_folders import find_truth, methods_in
    from polypscope.evaluation.segmentation.spec import TOOLBOX
    from polypscope.evaluation.segmentation.spec import protocol as find_protocol
    from polypscope.records.errors import UsageError

    spec = replace(find_protocol(protocol), outlines=outlines)
    if measures == "toolbox":
        spec = replace(spec, headline=TOOLBOX)
    clips, truth_problems = find_truth(truth)
    clips = _with_attributes(clips, Path(truth), attributes)
    methods: dict[str, Path] = {}
    for folder in predictions:
        for method, path in methods_in(folder, clips).items():
            unique = method if method not in methods else str(path)
            methods[unique] = path
    if name is not None:
        if len(name) != len(methods):
            raise UsageError(f"--name: expected {len(methods)} names, one per method, found {len(name)}.")
        methods = dict(zip(name, methods.values(), strict=True))
    arguments = {"truth": truth, "predictions": list(predictions), "protocol": protocol, "strict": strict, "jobs": jobs}
    command = "polypscope " + " ".join(sys.argv[1:]) if Path(sys.argv[0]).stem == "polypscope" else ""
    if out is None:
        return _run(clips, truth_problems, methods, spec, None, replicates, seed, strict, jobs, command)
    from polypscope.runtime.runlog import RunLog

    with RunLog(out, "evaluate segmentation", arguments) as log:
        scores = _run(clips, truth_problems, methods, spec, Path(out), replicates, seed, strict, jobs, command)
        for method, problems in scores.problems.items():
            for text in problems[:50]:
                log.add_note(f"{method}: {text}")
        log.record(files={key: path.name for key, path in scores.files.items()}, failures=list(scores.failures))
        return scores


def _with_attributes(clips: list[TruthClip], truth: Path, attributes: Path | None) -> list[TruthClip]:
    from dataclasses import replace

    from polypscope.datasets.mask_folders import read_attributes

    file = attributes or (truth / "attributes.csv" if (truth / "attributes.csv").is_file() else None)
    if file is None:
        return clips
    known = read_attributes(file)
    return [replace(clip, attributes=known.get(clip.path, known.get(clip.name, ()))) for clip in clips]


def _run(
    truth: list[TruthClip],
    truth_problems: list[Problem],
    methods: dict[str, Path],
    spec: Spec,
    out: Path | None,
    replicates: int,
    seed: int,
    strict: bool,
    jobs: int,
    command: str,
) -> SegmentationScores:
    import shutil

    from polypscope.datasets.mask_folders import pair
    from polypscope.evaluation.segmentation import Result
    from polypscope.evaluation.segmentation.clips import join
    from polypscope.evaluation.segmentation.order import natural
    from polypscope.records.errors import InputError
    from polypscope.report.segmentation import Benchmark
    from polypscope.runtime.jobs import run_jobs

    if out:
        shutil.rmtree(out / ".frames", ignore_errors=True)  # left by a run that was interrupted
    bench = Benchmark(spec, {}, command=command)
    tasks: list[_Task] = []
    for method, folder in methods.items():
        pairing = pair(folder, truth, spec)
        bench.problems[method] = [*truth_problems, *pairing.problems]
        _refuse(bench.problems[method], strict)
        tasks += _tasks(method, pairing.clips, spec, out / ".frames" if out else None)
    outcome = run_jobs(_score, tasks, names=[task.name for task in tasks], jobs=jobs, label="scoring", unit="clips")
    failures = tuple(f"{failure.name}: {failure.sentence}" for failure in outcome.failures)
    if not outcome.good:
        raise InputError(f"evaluation: no clip could be scored; {failures[0]}")
    for method in methods:
        parts: dict[tuple[str, str], list[ClipScores]] = {}
        for task, value in zip(tasks, outcome.values, strict=True):
            if task.method == method and value is not None:
                parts.setdefault((value.subset, value.name), []).append(value)
        scored = sorted((join(p) for p in parts.values()), key=lambda c: (natural(c.subset), natural(c.name)))
        if scored:
            bench.results[method] = Result(spec, tuple(scored))
            bench.problems[method] += _oddities(scored)
            _refuse(bench.problems[method], strict)
    if replicates:
        _statistics(bench, replicates, seed)
    _print(bench, failures)
    files = _write(bench, out) if out else {}
    scores = {
        method: {s: dict(summary.values) for s in bench.subsets() if (summary := bench.summary(method, s))}
        for method in bench.results
    }
    problems = {method: tuple(p.text for p in found) for method, found in bench.problems.items()}
    return SegmentationScores(spec.name, scores, problems, files, failures)


@dataclass(frozen=True)
class _Task:
    """One clip (or some stills) of one method; rows go to a file of their own, so that no process keeps them."""

    method: str
    clip: PairedClip
    spec: Spec
    rows: Path | None

    @property
    def name(self) -> str:
        return f"{self.method}: {self.clip.subset}/{self.clip.name}".replace("/:", ":")


def _tasks(method: str, clips: list[PairedClip], spec: Spec, rows: Path | None) -> list[_Task]:
    from dataclasses import replace

    tasks = []
    for clip in clips:
        # A video is one piece, so that neighbours stay together; a large folder of stills is divided.
        step = len(clip.pairs) if clip.is_video or spec.drop_first or spec.drop_last else _STILLS_PER_JOB
        for start in range(0, len(clip.pairs), step):
            part = replace(clip, pairs=clip.pairs[start : start + step])
            file = rows / method.replace("/", "_") / f"{len(tasks):06d}.parquet" if rows else None
            tasks.append(_Task(method, part, spec, file))
    return tasks


def _score(task: _Task) -> ClipScores:
    """Score a task's frames and put their rows aside. Runs in a process of its own."""
    from polypscope.evaluation.segmentation import score_clip

    scored = score_clip(task.clip, task.spec)
    if task.rows is not None:
        import polars as pl

        task.rows.parent.mkdir(parents=True, exist_ok=True)
        rows = pl.DataFrame([{"method": task.method, **row} for row in scored.rows()])
        part = task.rows.with_suffix(".part")
        rows.write_parquet(part)
        part.replace(task.rows)
    from collections import Counter
    from dataclasses import replace

    # What the caller needs to know of the frames, in a form that does not grow with them.
    counts = Counter(
        remark if not remark.startswith("unreadable") else "unreadable prediction"
        for remarks in scored.remarks
        for remark in remarks
    )
    examples = [remark for remarks in scored.remarks for remark in remarks if remark.startswith("unreadable")][:3]
    summary = tuple((kind, str(n)) for kind, n in counts.items()) + tuple(("example", text) for text in examples)
    return replace(scored.without_rows(), remarks=summary)


def _oddities(clips: list[ClipScores]) -> list[Problem]:
    """What only showed when the images were read: sizes that differ, empty and unreadable maps, skipped frames."""
    from polypscope.datasets.mask_folders import Problem

    problems, resized, frames = [], 0, 0
    for clip in clips:
        where = f"{clip.subset}/{clip.name}".lstrip("/")
        counts: dict[str, int] = {}
        examples = []
        for kind, value in clip.remarks:
            if kind == "example":
                examples.append(value)
            else:
                counts[kind] = counts.get(kind, 0) + int(value)
        resized, frames = resized + counts.get("resized", 0), frames + clip.frames
        empty = counts.get("empty prediction", 0) - counts.get("missing prediction", 0)
        if counts.get("empty prediction", 0) == clip.frames:
            problems.append(Problem("empty clip", where, f"{where}: all {clip.frames} predictions are empty maps."))
        elif empty > 0:
            text = f"{where}: {empty} of {clip.frames} predictions are empty maps; they score above 0 at threshold 0."
            problems.append(Problem("empty prediction", where, text))
        if n := counts.get("unreadable prediction", 0):
            text = f"{where}: {n} predictions cannot be read and are scored as empty maps: {examples[0]}"
            problems.append(Problem("unreadable prediction", where, text))
        if counts.get("empty truth", 0) == clip.frames:
            text = f"{where}: no frame has any truth brighter than 128; are the masks stored as 0 and 1?"
            problems.append(Problem("empty truth", where, text))
        if n := counts.get("full truth", 0):
            text = f"{where}: in {n} frames all is truth, so that specificity is undefined (NaN)."
            problems.append(Problem("full truth", where, text))
        problems += [Problem("unreadable truth", where, f"{where}: frame left out: {text}") for text in clip.skipped]
    if resized:
        text = f"{resized} of {frames} predictions differ in size from the truth and were resized to it (bilinear)."
        problems.append(Problem("resized", "", text))
    return problems


def _refuse(problems: list[Problem], strict: bool) -> None:
    from polypscope.records.errors import InputError

    if strict and problems:
        more = f" ({len(problems) - 1} further oddities)" if len(problems) > 1 else ""
        raise InputError(f"--strict: {problems[0].text.rstrip('.')}{more}; mend the files or leave out --strict.")


def _statistics(bench: Benchmark, replicates: int, seed: int) -> None:
    from polypscope.evaluation.segmentation.compare import compare, interval
    from polypscope.evaluation.segmentation.spec import OURS
    from polypscope.records.errors import InputError

    for subset in bench.subsets():
        for method, result in bench.results.items():
            clips = [clip for clip in result.clips if clip.subset == subset]
            for measure in (*bench.spec.headline, *OURS) if clips else ():
                bench.intervals[method, subset, measure] = interval(clips, result, measure, replicates, seed)
        rivals = {m: r for m, r in bench.results.items() if any(clip.subset == subset for clip in r.clips)}
        if len(rivals) > 1:
            try:
                tests = [compare(rivals, measure, subset, seed) for measure in bench.spec.headline[:1]]
                dice = "maxDice" if bench.spec.name == "sunseg" else "meanDice"
                dice = "mDice" if bench.spec.name == "polypsense3d" else dice
                if dice not in bench.spec.headline[:1]:
                    tests.append(compare(rivals, dice, subset, seed))
                bench.comparisons[subset] = [test for group in tests for test in group]
            except InputError as error:
                from polypscope.datasets.mask_folders import Problem

                for method in rivals:
                    bench.problems[method].append(Problem("not compared", subset, str(error)))


def _print(bench: Benchmark, failures: tuple[str, ...]) -> None:
    from collections import Counter

    from polypscope import DISCLAIMER
    from polypscope.report.segmentation import HEADINGS, subset_title
    from polypscope.runtime.console import note, say, show_table

    for subset in bench.subsets():
        rows = []
        for method in bench.results:
            if summary := bench.summary(method, subset):
                printed = summary.printed(bench.spec.decimals)
                rows.append([method, *(printed[m] for m in bench.spec.headline), summary.clips, summary.frames])
        heads = ["method", *(HEADINGS[m][0] for m in bench.spec.headline), "clips", "frames"]
        show_table(f"{subset_title(subset)}, protocol {bench.spec.name}", heads, rows)
    for method, problems in bench.problems.items():
        kinds = Counter(problem.kind for problem in problems)
        for kind, count in kinds.items():
            first = next(problem.text for problem in problems if problem.kind == kind)
            note(f"{method}: {first}" + (f" ({count - 1} more of this kind)" if count > 1 else ""))
    for failure in failures:
        note(f"not scored: {failure}")
    say(DISCLAIMER)


def _write(bench: Benchmark, out: Path) -> dict[str, Path]:
    """Write every result file, each under a temporary name first."""
    import shutil

    import polars as pl

    from polypscope.report.page import write_page
    from polypscope.report.plots import render
    from polypscope.report.segmentation import curve_figures, curve_rows, sections, tables

    files: dict[str, Path] = {}

    def put(name: str, data: bytes) -> None:
        path = out / name
        part = path.with_name(path.name + ".part")
        part.write_bytes(data)
        part.replace(path)
        files[name] = path

    parts = sorted((out / ".frames").rglob("*.parquet"))
    temporary = out / "frames.parquet.part"
    pl.scan_parquet(parts).sink_parquet(temporary)
    temporary.replace(out / "frames.parquet")
    files["frames.parquet"] = out / "frames.parquet"
    shutil.rmtree(out / ".frames")
    put("clips.csv", pl.DataFrame(_clip_rows(bench)).write_csv().encode())
    put("summary.json", _summary_json(bench))
    figures = {}
    for key, figure in curve_figures(bench).items():
        figures[key] = render(figure, "svg")
        put(f"{key}.svg", figures[key])
        put(f"{key}.png", render(figure, "png"))
    put("curves.csv", pl.DataFrame(curve_rows(bench)).write_csv().encode())
    all_tables = tables(bench)
    put("tables.md", "\n\n".join(f"**{t.caption}**\n\n{t.markdown()}" for _, t in all_tables).encode())
    put("tables.tex", "\n\n".join(t.latex() for _, t in all_tables).encode())
    lead = "How well predicted outlines of polyps agree with the truth, by a published protocol, quirk for quirk."
    write_page(out / "report.html", "Segmentation benchmark", sections(bench, figures), lead=lead)
    files["report.html"] = out / "report.html"
    return files


def _clip_rows(bench: Benchmark) -> list[dict[str, Any]]:
    from polypscope.evaluation.segmentation.clips import summarise

    rows = []
    for method, result in bench.results.items():
        for clip in result.clips:
            where = {"method": method, "subset": clip.subset, "case": clip.case, "clip": clip.name}
            scores = summarise([clip], bench.spec).values
            rows.append({**where, "attributes": " ".join(clip.attributes), "frames": clip.frames, **scores})
    return rows


def _summary_json(bench: Benchmark) -> bytes:
    import json
    import math
    from dataclasses import asdict

    from polypscope import DISCLAIMER

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [plain(item) for item in value]
        return None if isinstance(value, float) and not math.isfinite(value) else value

    methods: dict[str, Any] = {}
    for method in bench.results:
        methods[method] = {"subsets": {}, "problems": [asdict(problem) for problem in bench.problems[method]]}
        for subset in bench.subsets():
            if summary := bench.summary(method, subset):
                keys = [key for key in bench.intervals if key[:2] == (method, subset)]
                methods[method]["subsets"][subset] = {
                    "clips": summary.clips,
                    "frames": summary.frames,
                    "scores": summary.values,
                    "standard_deviations": summary.deviations,
                    "intervals": {key[2]: [bench.intervals[key].low, bench.intervals[key].high] for key in keys},
                    "printed": summary.printed(bench.spec.decimals),
                }
    comparisons = {subset: [asdict(c) for c in found] for subset, found in bench.comparisons.items()}
    data = {"protocol": asdict(bench.spec), "methods": methods, "comparisons": comparisons,
            "disclaimer": DISCLAIMER}  # fmt: skip
    return (json.dumps(plain(data), indent=1, ensure_ascii=False) + "\n").encode()
