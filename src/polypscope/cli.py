"""The command line: a table over the API and nothing else.

Exit codes: 0 the work was done; 1 it failed, and one sentence says why; 2 the command was not understood.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NamedTuple

from polypscope import __version__

__all__ = ["COMMANDS", "GROUPS", "Command", "build_app", "main"]


class Command(NamedTuple):
    """Words on the command line, the API function that they call, and its first docstring line.

    The line is repeated here so that `polypscope --help` need not import every API module; a contract test keeps
    both equal.
    """

    words: str
    function: str
    summary: str


COMMANDS: tuple[Command, ...] = (
    Command(
        "calibrate",
        "polypscope.api.calibrate:calibrate",
        "Calibrate a camera from pictures of a chessboard or Charuco board (Zhang's method).",
    ),
    Command(
        "evaluate depth",
        "polypscope.api.evaluate_depth:depth",
        "Score predicted depth maps against truth, dense or at a few known points, in mm.",
    ),
    Command(
        "evaluate propagation",
        "polypscope.api.evaluate_propagation:propagation",
        "Show where size errors come from: true or predicted mask with true or predicted depth.",
    ),
    Command(
        "evaluate size",
        "polypscope.api.evaluate_size:size",
        "Score polyp sizes against truth, per polyp: errors, size classes, agreement, intervals.",
    ),
    Command(
        "measure forceps",
        "polypscope.api.measure:forceps",
        "Measure polyps, and depths of contact points, from biopsy forceps that annotators marked.",
    ),
    Command(
        "measure image",
        "polypscope.api.measure:image",
        "Measure a polyp in one picture from its mask, its depth and the camera: long and short axis in mm.",
    ),
    Command(
        "undistort",
        "polypscope.api.calibrate:undistort",
        "Straighten pictures: what an ideal pinhole camera would have seen, with that camera's JSON beside them.",
    ),
    Command(
        "demo",
        "polypscope.api.demo:demo",
        "Render a short withdrawal with polyps of known size, analyse it and report, truth beside estimate.",
    ),
    Command(
        "analyze",
        "polypscope.api.analyze:analyze",
        "Find, follow and measure the polyps of a video, and write a report.",
    ),
    Command(
        "live",
        "polypscope.api.live:live",
        "Analyse a camera or a file as it happens, with a preview in the browser.",
    ),
    Command(
        "labels derive",
        "polypscope.api.labels:derive_labels",
        "Derive boundary, scribble, polygon and box labels and visual attributes from masks.",
    ),
    Command(
        "datasets stats",
        "polypscope.api.dataset_stats:dataset_statistics",
        "Draw centre bias, polyp size, contrast and attribute counts of data sets with masks.",
    ),
    Command(
        "evaluate segmentation",
        "polypscope.api.evaluate_segmentation:evaluate_segmentation",
        "Score predicted masks by the SUN-SEG, still-image or PolypSense3D protocol.",
    ),
    Command(
        "doctor",
        "polypscope.api.doctor:doctor",
        "Check this installation: versions, cores, inference providers, shipped weights and extras.",
    ),
    Command(
        "export",
        "polypscope.api.export:export",
        "Export trained weights to ONNX with a model card, and print how far ONNX is from torch.",
    ),
    Command(
        "models info",
        "polypscope.api.models:info",
        "Show a model's whole card: data, licences, recipe, scores and what it fails on.",
    ),
    Command(
        "models list",
        "polypscope.api.models:list_models",
        "List the weights that ship, with their size, input and best-known scores.",
    ),
    Command(
        "predict",
        "polypscope.api.predict:predict",
        "Write the polyp probability of every picture as an 8-bit PNG of the same size and name.",
    ),
    Command(
        "train",
        "polypscope.api.train:train",
        "Train a segmenter from a TOML recipe; the same command resumes an interrupted run.",
    ),
    Command(
        "datasets realism",
        "polypscope.api.realism:realism",
        "Compare the look of simulated frames with real ones: colour, contrast, highlights, darkness, gradients.",
    ),
    Command(
        "simulate",
        "polypscope.api.simulate:simulate",
        "Simulate colonoscopy sequences with exact masks, depth, poses and sizes in mm.",
    ),
    Command(
        "evaluate detection",
        "polypscope.api.evaluate_detection:detection",
        "Score detectors by the MICCAI 2015 study: counts, latency, curves, alarms, breakdowns, statistics, report.",
    ),
    Command(
        "detect",
        "polypscope.api.detect:detect",
        "Find polyps by a hand-crafted or hybrid method of the MICCAI 2015 challenge, and write them as CSV.",
    ),
    Command(
        "fuse",
        "polypscope.api.fuse:fuse",
        "Combine detectors by union, saliency map or voting; with --search try all subsets and rank them.",
    ),
    Command(
        "compare",
        "polypscope.api.compare:compare",
        "Compare methods on the same cases: tests, intervals, rankings, significance map, and what they mean in words.",
    ),
    Command(
        "datasets list",
        "polypscope.api.datasets:list_all",
        "List the data sets that Polypscope reads.",
    ),
    Command(
        "datasets info",
        "polypscope.api.datasets:info",
        "Show the card of a data set: licence, citation, how to obtain it, the folders it must have.",
    ),
    Command(
        "datasets check",
        "polypscope.api.datasets:check",
        "Read a whole copy of a data set and name every fault in it.",
    ),
    Command(
        "datasets convert",
        "polypscope.api.datasets:convert",
        "Bring a data set into a common layout, with COCO annotations and a manifest.",
    ),
)

# One line for each first word that has several commands under it.
GROUPS: dict[str, str] = {
    "datasets": "Look at, check and convert data sets.",
    "evaluate": "Score predictions by the published protocols.",
    "labels": "Derive further labels from masks.",
    "measure": "Measure in millimetres.",
    "models": "Look at the models that ship or were trained here.",
}

# `polypscope measure PICTURE` means `polypscope measure image PICTURE`.
DEFAULTS: dict[str, str] = {"measure": "image"}

_HELP = """Find, outline and measure polyps in colonoscopy video, and prove how well.

Research software, not a medical device."""
_EPILOGUE = (
    "Add --debug to any command to see the traceback of an error; -o is short for --out. "
    "Exit codes: 0 done, 1 failed, 2 wrong usage."
)


def build_app(arguments: Sequence[str] = ()):  # type: ignore[no-untyped-def]  # cyclopts is imported late on purpose
    """The cyclopts application for these arguments.

    An API module is imported only when `arguments` name its command; the others are listed by their summary.
    """
    from cyclopts import App

    app = App(
        name="polypscope",
        help=_HELP,
        help_epilogue=_EPILOGUE,
        version=__version__,
        help_format="markdown",
        result_action="return_value",
    )
    groups: dict[str, App] = {}
    for words, function, summary in COMMANDS:
        *parents, name = words.split()
        parent = app
        for word in parents:
            if word not in groups:
                groups[word] = App(name=word, help=GROUPS[word])
                app.command(groups[word])
            parent = groups[word]
        chosen = list(arguments[: len(words.split())]) == words.split()
        # Without `help`, cyclopts takes the whole docstring of the function.
        parent.command(function, name=name, **({} if chosen else {"help": summary}))
    return app


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    sys.exit(run(sys.argv[1:] if arguments is None else list(arguments)))


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit code."""
    debug = "--debug" in arguments
    arguments = ["--out" if word == "-o" else word for word in arguments if word != "--debug"]
    arguments = _with_default(arguments)
    try:
        result = build_app(arguments)(arguments, exit_on_error=False)
    except KeyboardInterrupt:
        print("Stopped. What was written so far is kept.", file=sys.stderr)
        return 130
    except Exception as error:
        if debug:
            raise
        return _report(error)
    return int(getattr(result, "exit_code", 0))


def _report(error: Exception) -> int:
    """Print one sentence for an error and return the exit code."""
    from cyclopts import CycloptsError

    from polypscope.records.errors import PolypscopeError, UsageError

    if isinstance(error, CycloptsError):
        return 2  # cyclopts has printed what was wrong and what is near
    if isinstance(error, PolypscopeError):
        text = str(error)
    elif isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        text = f"{where}{error.strerror.lower()}; check the path, its permissions and the free space"
    elif isinstance(error, MemoryError):
        text = "out of memory; use fewer jobs or smaller pictures"
    else:
        text = (
            f"an unexpected {type(error).__name__} ({error}); this is a fault in Polypscope: "
            "run again with --debug and report the traceback"
        )
    print(f"Error: {text}", file=sys.stderr)
    return 2 if isinstance(error, UsageError) else 1


def _with_default(arguments: list[str]) -> list[str]:
    """Fill in the second word of a group that has a default, unless it is there or help is asked for."""
    if len(arguments) < 2 or arguments[0] not in DEFAULTS or arguments[1] in ("--help", "-h"):
        return arguments
    seconds = {words.split()[1] for words, _, _ in COMMANDS if words.startswith(arguments[0] + " ")}
    return arguments if arguments[1] in seconds else [arguments[0], DEFAULTS[arguments[0]], *arguments[1:]]
