"""Is this installation whole?"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Diagnosis", "doctor"]

# import name -> what a user misses when it is absent
_CORE = {
    "numpy": "arrays",
    "scipy": "statistics and geometry",
    "numba": "fast loops",
    "cv2": "image operations",
    "PIL": "16-bit images",
    "av": "video",
    "onnxruntime": "inference",
    "polars": "tables",
    "matplotlib": "plots",
    "jinja2": "reports",
    "joblib": "parallel jobs",
    "pydantic": "model cards",
    "rich": "terminal output",
}
_EXTRAS = {
    "train": ("torch", "onnx"),
    "statistics": ("statsmodels", "scikit_posthocs"),
}


@dataclass(frozen=True)
class Diagnosis:
    """What was found: rows of (part, state, detail), and whether anything that is installed is broken."""

    rows: tuple[tuple[str, str, str], ...]
    broken: tuple[str, ...]

    @property
    def exit_code(self) -> int:
        """1 when something is broken."""
        return 1 if self.broken else 0


def doctor() -> Diagnosis:
    """Check this installation: versions, cores, inference providers, shipped weights and extras.

    Everything that is installed is really imported and tried: a video is encoded and decoded, a compiled loop is
    run, each shipped weight file is compared with the hash in its card and run once. Exits with 1 when something
    that is installed is broken; a missing extra is no fault.
    """
    import os
    import platform

    from polypscope import DISCLAIMER, __version__
    from polypscope.runtime.console import say, show_table

    rows: list[tuple[str, str, str]] = [
        ("polypscope", "ok", __version__),
        ("python", "ok", platform.python_version()),
        ("machine", "ok", f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()}"),
    ]
    for name, purpose in _CORE.items():
        rows.append(_tried(name, purpose, required=True))
    rows += [_guard("compiled loops", _try_numba), _guard("video", _try_video), _guard("providers", _providers)]
    rows += _weights()
    for extra, packages in _EXTRAS.items():
        rows += [_tried(name, f"extra {extra}", required=False) for name in packages]
    broken = tuple(part for part, state, _ in rows if state == "BROKEN")
    show_table("Polypscope doctor", ("part", "state", "detail"), rows)
    say(f"{len(broken)} broken: {', '.join(broken)}." if broken else "Everything that is installed works.")
    say(DISCLAIMER)
    return Diagnosis(tuple(rows), broken)


def _tried(name: str, purpose: str, *, required: bool) -> tuple[str, str, str]:
    import importlib
    import importlib.util

    if importlib.util.find_spec(name) is None:
        if required:
            return name, "BROKEN", f"not installed ({purpose}); run: pip install --force-reinstall polypscope"
        return name, "absent", f"{purpose}; run: pip install 'polypscope[{purpose.split()[-1]}]'"
    try:
        module = importlib.import_module(name)
    except Exception as error:
        return name, "BROKEN", f"does not import: {type(error).__name__}: {error}"
    return name, "ok", f"{getattr(module, '__version__', '')} ({purpose})".strip()


def _guard(part: str, check) -> tuple[str, str, str]:  # type: ignore[no-untyped-def]
    try:
        return part, "ok", check()
    except Exception as error:
        return part, "BROKEN", f"{type(error).__name__}: {error}"


def _try_numba() -> str:
    import numba
    import numpy as np

    @numba.njit
    def total(values):  # type: ignore[no-untyped-def]
        s = 0.0
        for v in values:
            s += v
        return s

    if total(np.arange(5.0)) != 10.0:
        raise ArithmeticError("a compiled loop gave a wrong sum")
    return "numba compiles and runs"


def _try_video() -> str:
    import io
    from fractions import Fraction

    import av
    import numpy as np

    buffer = io.BytesIO()
    with av.open(buffer, "w", format="mp4") as out:
        stream = out.add_stream("libx264", rate=Fraction(25), options={"preset": "ultrafast"})
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for _ in range(3):
            out.mux(stream.encode(av.VideoFrame.from_ndarray(np.zeros((48, 64, 3), np.uint8), format="rgb24")))
        out.mux(stream.encode(None))
    buffer.seek(0)
    with av.open(buffer) as source:
        count = sum(1 for _ in source.decode(video=0))
    if count != 3:
        raise ValueError(f"wrote 3 frames, read {count}")
    return "H.264 is written and read"


def _providers() -> str:
    import onnxruntime

    return ", ".join(onnxruntime.get_available_providers())


def _weights() -> list[tuple[str, str, str]]:
    """Each shipped weight file: hash as in its card, and one frame through it."""
    from polypscope.runtime.cards import list_cards

    cards = list_cards()
    if not cards:
        return [("weights", "absent", "no weights ship with this build")]
    return [_guard(f"weights {card.name}", lambda card=card: _try_weights(card)) for card in cards]


def _try_weights(card) -> str:  # type: ignore[no-untyped-def]
    import numpy as np

    card.check_file()
    detail = f"{card.bytes / 1e6:.1f} MB, hash as in its card"
    if card.kind != "segmenter":
        return detail
    from polypscope.runtime.segmenter import Segmenter

    found = Segmenter.load(card.name).step(np.zeros((240, 320, 3), np.uint8))
    if found.shape != (240, 320):
        raise ValueError(f"a 240 x 320 frame gave a map of shape {found.shape}")
    return f"{detail}, runs{', interim' if card.interim else ''}"
