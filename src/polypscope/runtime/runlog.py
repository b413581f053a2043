"""`run.json`: what was run, with what, on what, for how long; written beside the results of every run."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from polypscope import DISCLAIMER, __version__
from polypscope.records.errors import OutputError

__all__ = ["RunLog", "sha256"]

_LIBRARIES = ("numpy", "scipy", "numba", "opencv-python-headless", "av", "onnxruntime", "polars", "torch")


def sha256(path: Path) -> str:
    """Hash of a file, read in pieces."""
    digest = hashlib.sha256()
    with Path(path).open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


class RunLog:
    """Context manager that keeps `run.json` true at every moment: running, done, failed or interrupted.

    with RunLog(folder, "predict", {"input": path}) as log:
        log.record(frames=120)          # anything worth keeping
        log.add_input(weights_path)     # hashed
        log.add_note("12 frames were damaged")
    """

    def __init__(self, folder: Path | str, command: str, arguments: dict[str, Any]) -> None:
        self.path = Path(folder) / "run.json"
        self._started = time.monotonic()
        self._data: dict[str, Any] = {
            "command": command,
            "arguments": {key: _plain(value) for key, value in arguments.items()},
            "status": "running",
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": None,
            "polypscope": __version__,
            "python": platform.python_version(),
            "libraries": _versions(),
            "machine": {"system": platform.platform(), "processor": platform.machine(), "cores": os.cpu_count()},
            "inputs": {},
            "notes": [],
            "disclaimer": DISCLAIMER,
        }

    def __enter__(self) -> RunLog:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(
                f"cannot make the output folder {self.path.parent} ({error.strerror}); choose another with --out"
            ) from None
        self._write()
        return self

    def record(self, **values: Any) -> None:
        """Keep further facts of the run."""
        self._data.update({key: _plain(value) for key, value in values.items()})
        self._write()

    def add_input(self, path: Path | str) -> None:
        """Keep name and hash of a file that the results depend on."""
        path = Path(path)
        self._data["inputs"][path.name] = {"sha256": sha256(path), "bytes": path.stat().st_size}
        self._write()

    def add_note(self, text: str) -> None:
        """Keep a remark for whoever reads the results."""
        self._data["notes"].append(text)
        self._write()

    @property
    def notes(self) -> list[str]:
        """Remarks so far."""
        return list(self._data["notes"])

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._data["seconds"] = round(time.monotonic() - self._started, 3)
        if error is None:
            self._data["status"] = "done"
        elif isinstance(error, KeyboardInterrupt):
            self._data["status"] = "interrupted"
        else:
            self._data["status"] = "failed"
            self._data["error"] = str(error) or type(error).__name__
        try:
            self._write()
        except OSError:
            if error is None:  # do not hide the first failure behind a full disk
                raise

    def _write(self) -> None:
        temporary = self.path.with_name(".run.json.part")
        temporary.write_text(json.dumps(self._data, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        temporary.replace(self.path)


def _versions() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for name in _LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _plain(value: Any) -> Any:
    """A JSON form of an argument: paths and unknown objects as text, containers item by item."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [_plain(item) for item in value]
    return str(value)
