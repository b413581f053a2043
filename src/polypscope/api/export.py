"""From trained weights to a file that runs without torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Exported", "export"]


@dataclass(frozen=True)
class Exported:
    """The ONNX file, its card, and how far it is from torch: a file that is too far is not written."""

    file: Path
    card: Path
    parity: float
    int8: Path | None = None


def export(
    checkpoint: Path,
    out: Path,
    *,
    size: int = 352,
    name: str | None = None,
    facts: Path | None = None,
    half: bool = False,
    int8: bool = False,
    depth: Path | None = None,
    together_with: tuple[str, ...] = (),
) -> Exported:
    """Export trained weights to ONNX with a model card, and print how far ONNX is from torch.

    Parameters
    ----------
    checkpoint
        `weights.pt` or `last.pt` of `polypscope train`; with --int8 also an .onnx file that was exported before.
    out
        The .onnx file to write; the card goes beside it as .json.
    size
        Side in pixels of the square that pictures are squeezed to; a multiple of 32.
    name
        Name of the model in its card; the file's name without its ending if not given.
    facts
        TOML file with the card's hand-written fields: summary, data, licences, what it fails on. Its [[score_on]]
        tables name folders on which the exported file is scored.
    half
        Round large weights to 16 bits and store them so: half the file, the same speed. The file equals a torch model
        with the rounded weights; how far these are from the trained ones is printed.
    int8
        Also write an 8-bit file beside it, calibrated on the training pictures, and print its speed and difference.
        If `checkpoint` is an .onnx file, `out` is its 8-bit form, calibrated on the [[calibrate_on]] tables of `facts`
        or, for a depth head, on simulated frames.
    depth
        The exported segmenter (.onnx) whose features a depth head reads: `checkpoint` is then a `depth.pt`.
    together_with
        Further segmenters, each a `weights.pt`, an exported .onnx file or the name of a shipped model: one file is
        written that averages them all. It has no memory: it is for single pictures. Of a file that averages several
        itself, each counts as one.
    """
    from polypscope.records.errors import MissingExtra

    try:
        import importlib

        importlib.import_module("torch")
        importlib.import_module("onnx")
    except ImportError:
        raise MissingExtra.of("torch and onnx", extra="train", needed_for="exporting") from None
    from polypscope.runtime.console import say
    from polypscope.training import export as exporting
    from polypscope.training.int8 import export_int8

    out = Path(out)
    if depth is not None:
        known = exporting.read_facts(Path(facts)) if facts else {}
        parity_mm = exporting.export_depth(Path(checkpoint), out, Path(depth), name or out.stem, known)
        say(f"largest relative difference to torch: {parity_mm:.1e}")
        say(f"wrote {out} ({out.stat().st_size / 1e6:.1f} MB) and {out.with_suffix('.json')}")
        return Exported(out, out.with_suffix(".json"), parity_mm)
    if Path(checkpoint).suffix == ".onnx":
        return _quantise(Path(checkpoint), out, facts, int8)
    model, config = exporting.load_trained(Path(checkpoint))
    architecture = config.model.name
    if together_with:
        model, architecture = exporting.load_ensemble(model, together_with), "ensemble"
    known = exporting.read_facts(Path(facts)) if facts else {}
    wanted = known.pop("score_on", [])
    written = exporting.export_segmenter(model, architecture, out, size, half)
    spec, parity, rounding = written.spec, written.parity, written.rounding
    say(f"largest difference to torch: probability {parity.probability:.1e}, state {parity.state:.1e}")
    if rounding is not None:
        say(f"rounding the weights to 16 bits moved the probability by up to {rounding.probability:.1e}")
    known.setdefault("streaming", architecture == "pns_plus_stream")
    known["storage"] = "float16" if half else "float32"
    label = name or out.stem
    exporting.write_card(out, label, architecture, spec, known)
    if wanted:
        _score(out, wanted, Path(facts or ".").parent)
    small = None
    if int8:
        small = out.with_name(f"{out.stem}-int8.onnx")
        for line in export_int8(out, small, config.train, config.validate_on or config.train, {}):
            say(line)
    say(f"wrote {out} ({out.stat().st_size / 1e6:.1f} MB) and {out.with_suffix('.json')}")
    return Exported(out, out.with_suffix(".json"), max(parity.probability, parity.state), small)


def _quantise(source: Path, out: Path, facts: Path | None, int8: bool) -> Exported:
    """The 8-bit form of an exported file."""
    from polypscope.records.errors import UsageError
    from polypscope.runtime.cards import find_card
    from polypscope.runtime.console import say
    from polypscope.training.config import Source
    from polypscope.training.export import read_facts
    from polypscope.training.int8 import export_depth_int8, export_int8
    from polypscope.training.scores import source_of

    known = read_facts(Path(facts)) if facts else {}
    if int8 and out.resolve() != source.resolve() and find_card(source).kind == "depth":
        for line in export_depth_int8(source, out, known):
            say(line)
        say(f"wrote {out} ({out.stat().st_size / 1e6:.1f} MB) and {out.with_suffix('.json')}")
        return Exported(out, out.with_suffix(".json"), float("nan"), out)
    calibrate_on, wanted = known.pop("calibrate_on", []), known.pop("score_on", [])
    if not int8 or not calibrate_on or facts is None:
        raise UsageError(
            f"{source}: expected a checkpoint, or with an .onnx file --int8 and --facts with [[calibrate_on]] tables, "
            f"found {'no such tables' if int8 else 'no --int8'}."
        )
    if out.resolve() == source.resolve():
        raise UsageError(f"{out}: expected another file than the one to be put into 8 bits; give another name.")
    base = Path(facts).resolve().parent
    calibrating = [Source.model_validate(table).under(base) for table in calibrate_on]
    chosen = [table for table in wanted if table.get("used_to_choose")]
    comparing = [source_of(table).under(base) for table in chosen] or calibrating
    for line in export_int8(source, out, calibrating, comparing, known):
        say(line)
    if wanted:
        _score(out, wanted, base)
    say(f"wrote {out} ({out.stat().st_size / 1e6:.1f} MB) and {out.with_suffix('.json')}")
    return Exported(out, out.with_suffix(".json"), float("nan"), out)


def _score(out: Path, wanted: list[dict[str, Any]], base: Path) -> None:
    """Score an exported file, show the scores and put them into its card."""
    from polypscope.runtime.cards import find_card
    from polypscope.runtime.console import show_table
    from polypscope.training.export import write_card
    from polypscope.training.scores import score_sets

    scores = score_sets(out, wanted, base)
    card = find_card(out)
    facts = card.model_dump(exclude={"name", "file", "sha256", "bytes", "input", "architecture", "scores"})
    write_card(out, card.name, card.architecture, card.input, {**facts, "scores": scores})
    rows = [(s["data"], s["metric"], round(s["value"], 4), s["images"]) for s in scores]
    show_table("Scores of the exported file", ("data", "metric", "value", "images"), rows)
