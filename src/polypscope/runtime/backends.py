"""Sessions that run an ONNX file: ONNX Runtime, or OpenVINO as an optional provider, behind one small interface."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from polypscope.records.errors import MissingExtra, ModelError, UsageError

__all__ = ["PROVIDERS", "Provider", "Session", "TensorSpec", "open_session"]

Provider = Literal["cpu", "openvino", "cuda", "coreml", "directml"]
PROVIDERS: tuple[str, ...] = ("cpu", "openvino", "cuda", "coreml", "directml")
_ORT_NAMES = {
    "cpu": "CPUExecutionProvider",
    "cuda": "CUDAExecutionProvider",
    "coreml": "CoreMLExecutionProvider",
    "directml": "DmlExecutionProvider",
}
_DTYPES = {"tensor(float)": np.float32, "tensor(uint8)": np.uint8, "tensor(float16)": np.float16}

TensorSpec = tuple[str, tuple[int | None, ...], Any]
"""Name, shape (None where it is free) and numpy dtype of an input."""


class Session(Protocol):
    """What the models need of a runtime."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[str, ...]

    def run(self, feeds: Mapping[str, NDArray[Any]], wanted: Sequence[str] | None = None) -> dict[str, NDArray[Any]]:
        """Outputs by name."""
        ...


class OnnxSession:
    """ONNX Runtime on one provider; it never falls back to another one silently."""

    def __init__(self, path: Path, threads: int, provider: str) -> None:
        import onnxruntime as ort

        name = _ORT_NAMES[provider]
        if name not in ort.get_available_providers():
            have = [short for short, long in _ORT_NAMES.items() if long in ort.get_available_providers()]
            raise ModelError(
                f"Provider {provider}: expected an ONNX Runtime that has {name}, found one with {', '.join(have)}; "
                "choose one of these or install the matching onnxruntime package."
            )
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        # Threads spin between two layers, which is faster than to be woken for each, but not for long, and no longer
        # than a run lasts: the decoder and the page need the cores too.
        options.add_session_config_entry("session.intra_op.allow_spinning", "1")
        options.add_session_config_entry("session.intra_op.spin_duration_us", "150")
        options.add_session_config_entry("session.force_spinning_stop", "1")
        try:
            self._session = ort.InferenceSession(str(path), options, providers=[name])
        except Exception as error:
            raise _unreadable(path, error) from None
        self.inputs = tuple(
            (
                node.name,
                tuple(n if isinstance(n, int) else None for n in node.shape),
                _DTYPES.get(node.type, np.float32),
            )
            for node in self._session.get_inputs()
        )
        self.outputs = tuple(node.name for node in self._session.get_outputs())

    def run(self, feeds: Mapping[str, NDArray[Any]], wanted: Sequence[str] | None = None) -> dict[str, NDArray[Any]]:
        names = list(wanted or self.outputs)
        return dict(zip(names, self._session.run(names, dict(feeds)), strict=True))


class OpenVinoSession:
    """OpenVINO's CPU plugin; up to twice as fast for large networks on some processors."""

    def __init__(self, path: Path, threads: int) -> None:
        try:
            import openvino
        except ImportError:
            raise MissingExtra.of("openvino", extra="openvino", needed_for="--provider openvino") from None
        try:
            core = openvino.Core()
            model = core.read_model(str(path))
            # float32 is asked for, because the default of some processors is a rounding of 8 bits.
            settings = {
                "INFERENCE_NUM_THREADS": threads,
                "PERFORMANCE_HINT": "LATENCY",
                "INFERENCE_PRECISION_HINT": "f32",
            }
            self._model = core.compile_model(model, "CPU", settings)
        except Exception as error:
            raise _unreadable(path, error) from None
        self._request = self._model.create_infer_request()
        self.inputs = tuple(
            (
                node.any_name,
                tuple(int(n.get_length()) if n.is_static else None for n in node.partial_shape),
                np.dtype(node.element_type.to_dtype()).type,
            )
            for node in self._model.inputs
        )
        # A tensor may go by several names; those of the graph's inside begin with a slash.
        self.outputs = tuple(min(node.names, key=lambda name: (name[:1] == "/", name)) for node in self._model.outputs)

    def run(self, feeds: Mapping[str, NDArray[Any]], wanted: Sequence[str] | None = None) -> dict[str, NDArray[Any]]:
        self._request.infer(dict(feeds))
        return {name: self._request.get_tensor(name).data.copy() for name in wanted or self.outputs}


def _unreadable(path: Path, error: Exception) -> ModelError:
    reason = " ".join(str(error).split())[:160]
    return ModelError(
        f"{path}: expected an ONNX model that this runtime can load, found: {reason}; "
        "the file is damaged or needs a newer runtime."
    )


def open_session(path: Path, threads: int = 2, provider: str = "cpu") -> Session:
    """Open an ONNX file.

    Parameters
    ----------
    threads : threads of the runtime; 2 is what the measured speeds use.
    provider : "cpu", "openvino", or a device that the installed ONNX Runtime offers.
    """
    if provider not in PROVIDERS:
        raise UsageError(f"Provider: expected one of {', '.join(PROVIDERS)}, found {provider!r}.")
    if threads < 1:
        raise UsageError(f"Threads: expected at least 1, found {threads}.")
    if provider == "openvino":
        return OpenVinoSession(path, threads)
    return OnnxSession(path, threads, provider)
