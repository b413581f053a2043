"""From trained weights to a file that runs without torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

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
) -> Exported:
    """Export trained weights to ONNX with a model card, and print how far ONNX is from torch.

    Parameters
    ----------
    checkpoint
        `weights.pt` or `last.pt` of `polypscope train`.
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
    depth
        The exported segmenter (.onnx) whose features a depth head reads: `checkpoint` is then a `depth.pt`.
    """
    from polypscope.records.errors import MissingExtra

    try:
        import importlib

        importlib.import_module("torch")
        importlib.import_module("onnx")
    except ImportError:
        raise MissingExtra.of("torch and onnx", extra="train", needed_for="exporting") from None
    from polypscope.runtime.console import say, show_table
    from polypscope.training import export as exporting
    from polypscope.training.int8 import export_int8
    from polypscope.training.scores import score_sets

    out = Path(out)
    if depth is not None:
        known = exporting.read_facts(Path(facts)) if facts else {}
        parity_mm = exporting.export_depth(Path(checkpoint), out, Path(depth), name or out.stem, known)
        say(f"largest relative difference to torch: {parity_mm:.1e}")
        say(f"wrote {out} ({out.stat().st_size / 1e6:.1f} MB) and {out.with_suffix('.json')}")
        return Exported(out, out.with_suffix(".json"), parity_mm)
    model, config = exporting.load_trained(Path(checkpoint))
    known = exporting.read_facts(Path(facts)) if facts else {}
    wanted = known.pop("score_on", [])
    written = exporting.export_segmenter(model, config.model.name, out, size, half)
    spec, parity, rounding = written.spec, written.parity, written.rounding
    say(f"largest difference to torch: probability {parity.probability:.1e}, state {parity.state:.1e}")
    if rounding is not None:
        say(f"rounding the weights to 16 bits moved the probability by up to {rounding.probability:.1e}")
    known.setdefault("streaming", config.model.name == "pns_plus_stream")
    known["storage"] = "float16" if half else "float32"
    label = name or out.stem
    card = exporting.write_card(out, label, config.model.name, spec, known)
    if wanted:
        scores = score_sets(out, wanted, Path(facts or ".").parent)
        card = exporting.write_card(out, label, config.model.name, spec, {**known, "scores": scores})
        rows = [(s["data"], s["metric"], round(s["value"], 4), s["images"]) for s in scores]
        show_table("Scores of the exported file", ("data", "metric", "value", "images"), rows)
    small = None
    if int8:
        small, gains = export_int8(out, card, config)
        for line in gains:
            say(line)
    say(f"wrote {out} ({out.stat().st_size / 1e6:.1f} MB) and {out.with_suffix('.json')}")
    return Exported(out, out.with_suffix(".json"), max(parity.probability, parity.state), small)
