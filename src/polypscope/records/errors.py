"""The errors a user can meet, each one sentence: what was expected, what was found, what to do.

PolypscopeError
├── RecordError        a record was given a wrong shape, dtype, unit or value
├── InputError         a file, folder or stream that was given cannot be used
│   ├── MissingInput       it is not there
│   ├── DamagedInput       it is there, but broken, truncated or not what its name says
│   └── UnsafeInput        it is refused: too large, or it leaves the given root
├── OutputError        a result cannot be written (disk full, no permission, already there)
├── UsageError         arguments that contradict each other or name something unknown
├── ModelError         weights, cards or providers that are missing, corrupt or do not fit
└── MissingExtra       an optional dependency is needed; says which extra to install
"""

from __future__ import annotations

__all__ = [
    "DamagedInput",
    "InputError",
    "MissingExtra",
    "MissingInput",
    "ModelError",
    "OutputError",
    "PolypscopeError",
    "RecordError",
    "UnsafeInput",
    "UsageError",
]


class PolypscopeError(Exception):
    """Base of every error that Polypscope raises on purpose; `str(error)` is one sentence for the user."""


class RecordError(PolypscopeError, ValueError):
    """A record was given a value it cannot hold.

    >>> str(RecordError.of("Frame.rgb", expected="uint8 (H, W, 3)", found="float64 (4, 4)", hint="convert it first"))
    'Frame.rgb: expected uint8 (H, W, 3), found float64 (4, 4); convert it first.'
    """

    @classmethod
    def of(cls, what: str, *, expected: str, found: str, hint: str = "") -> RecordError:
        return cls(sentence(what, expected=expected, found=found, hint=hint))


class InputError(PolypscopeError):
    """Something that was given to read cannot be used."""


class MissingInput(InputError, FileNotFoundError):
    """A path that was given is not there."""

    # FileNotFoundError formats its own arguments; a user should read the sentence alone.
    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class DamagedInput(InputError):
    """A file is there, but is broken, truncated or not what it says it is."""


class UnsafeInput(InputError):
    """An input is refused for safety: a decompression bomb, or a path that leaves the given root."""


class OutputError(PolypscopeError):
    """A result cannot be written."""


class UsageError(PolypscopeError):
    """Arguments that contradict each other or name something unknown."""


class ModelError(PolypscopeError):
    """Weights, model cards or inference providers that are missing, corrupt or do not fit together."""


class MissingExtra(PolypscopeError, ImportError):
    """An optional dependency is not installed.

    >>> str(MissingExtra.of("torch", extra="train", needed_for="training"))
    "training needs torch, which is not installed; run: pip install 'polypscope[train]'"
    """

    @classmethod
    def of(cls, package: str, *, extra: str, needed_for: str) -> MissingExtra:
        return cls(f"{needed_for} needs {package}, which is not installed; run: pip install 'polypscope[{extra}]'")


def sentence(what: str, *, expected: str, found: str, hint: str = "") -> str:
    """The house's error sentence.

    >>> sentence("fov_deg", expected="a value in (0, 180)", found="200", hint="give degrees")
    'fov_deg: expected a value in (0, 180), found 200; give degrees.'
    """
    return f"{what}: expected {expected}, found {found}" + (f"; {hint}." if hint else ".")
