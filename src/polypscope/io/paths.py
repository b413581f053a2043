"""Paths a user can trust: natural order, no way out of a given root, and no half-written file under a final name."""

from __future__ import annotations

import os
import re
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from polypscope.records.errors import DamagedInput, InputError, MissingInput, OutputError, UnsafeInput

__all__ = [
    "STRAY_NAMES",
    "atomic_path",
    "list_files",
    "list_folders",
    "natural_key",
    "natural_sorted",
    "read_text",
    "require_file",
    "require_folder",
    "safe_join",
    "write_bytes",
    "write_text",
]

# Files that operating systems leave behind; they are never data, and a data-set check names them.
STRAY_NAMES = frozenset({".DS_Store", "Thumbs.db", "desktop.ini", "__MACOSX", "@eaDir", ".ipynb_checkpoints"})

_DIGITS = re.compile(r"([0-9]{1,400})")
T = TypeVar("T")


def natural_key(name: str | Path) -> tuple[tuple[int, int, str], ...]:
    """Sort key that reads runs of digits as numbers, so that frame 10 comes after frame 9.

    >>> sorted(["f10.png", "f9.png", "f1.png"], key=natural_key)
    ['f1.png', 'f9.png', 'f10.png']

    Equal numbers with different zero padding stay distinct, so the order never depends on the file system.

    >>> sorted(["1.png", "01.png", "a.png"], key=natural_key)
    ['1.png', '01.png', 'a.png']
    """
    parts = _DIGITS.split(os.fspath(name))
    return tuple(
        (0, int(part), f"{len(part):09d}") if part.isdecimal() and part.isascii() else (1, 0, part)
        for part in parts
        if part
    )


def natural_sorted(items: Iterable[T], key: Callable[[T], str | Path]) -> list[T]:
    """Sort in natural order of `key(item)`."""
    return sorted(items, key=lambda item: natural_key(key(item)))


def is_hidden(path: Path) -> bool:
    """True for names that a listing of data leaves out: dot files and what operating systems leave behind."""
    return path.name.startswith(".") or path.name in STRAY_NAMES


def list_files(folder: Path, suffixes: Iterable[str] | None = None) -> list[Path]:
    """Files directly in `folder`, in natural order, without hidden and stray ones.

    Parameters
    ----------
    folder
        An existing folder.
    suffixes
        Lower-case endings with the dot (".png"); all files when None. Upper case in file names matches too.
    """
    wanted = None if suffixes is None else frozenset(suffixes)
    with os.scandir(require_folder(folder)) as entries:
        found = [Path(entry.path) for entry in entries if entry.is_file()]
    kept = [path for path in found if not is_hidden(path) and (wanted is None or path.suffix.lower() in wanted)]
    return natural_sorted(kept, key=lambda path: path.name)


def list_folders(folder: Path) -> list[Path]:
    """Folders directly in `folder`, in natural order, without hidden and stray ones."""
    with os.scandir(require_folder(folder)) as entries:
        found = [Path(entry.path) for entry in entries if entry.is_dir()]
    return natural_sorted([path for path in found if not is_hidden(path)], key=lambda path: path.name)


def require_file(path: str | Path, what: str = "file") -> Path:
    """`path` as a Path if it is a readable file with something in it, else one sentence that says what it is."""
    path, wanted = Path(path), _with_article(what)
    try:
        status = path.stat()
    except FileNotFoundError:
        raise MissingInput(f"{path}: expected {wanted}, found nothing there; check the path.") from None
    except NotADirectoryError:
        raise MissingInput(f"{path}: expected {wanted}, but a part of this path is not a folder; check it.") from None
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        raise InputError(f"{path}: expected {wanted} that can be read, found: {_reason(error)}.") from None
    if stat.S_ISDIR(status.st_mode):
        raise InputError(f"{path}: expected {wanted}, found a folder; give the path of one file.")
    if stat.S_ISREG(status.st_mode) and status.st_size == 0:
        raise InputError(f"{path}: expected {wanted}, found an empty file; copy or download it again.")
    if not os.access(path, os.R_OK):
        raise InputError(f"{path}: expected {wanted} that can be read, found no permission; change its mode.")
    return path


def read_text(path: Path) -> str:
    """What a file says that is there and should be text in UTF-8; it may be empty."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise DamagedInput(
            f"{path}: expected text in UTF-8, found another encoding or no text at all (byte {error.start}); check the "
            "path, or save it as UTF-8."
        ) from None


def require_folder(path: str | Path, what: str = "folder") -> Path:
    """`path` as a Path if it is a folder that can be listed, else one sentence that says what it is."""
    path, wanted = Path(path), _with_article(what)
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise MissingInput(f"{path}: expected {wanted}, found nothing there; check the path.") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: expected {wanted} that can be read, found: {_reason(error)}.") from None
    if not stat.S_ISDIR(mode):
        raise InputError(f"{path}: expected {wanted}, found a file; give the folder that holds it.")
    if not os.access(path, os.R_OK | os.X_OK):
        raise InputError(f"{path}: expected {wanted} that can be read, found no permission; change its mode.")
    return path


def _with_article(what: str) -> str:
    return f"{'an' if what[0] in 'aeiou' else 'a'} {what}"


def safe_join(root: Path, name: str) -> Path:
    """`root/name`, refused when it would leave `root` (by `..`, an absolute path, a drive, or a symbolic link).

    For names that come from inside a file (a COCO `file_name`, a manifest column), which nobody has vetted.
    """
    refused = f"{name!r}: expected a path inside {root}, found one that leaves it; correct the file that names it."
    if "\0" in name or name.startswith(("/", "\\")) or re.match(r"^[A-Za-z]:", name):
        raise UnsafeInput(refused)
    parts = name.replace("\\", "/").split("/")
    if ".." in parts:
        raise UnsafeInput(refused)
    joined = root.joinpath(*[part for part in parts if part not in ("", ".")])
    if not joined.resolve().is_relative_to(root.resolve()):
        raise UnsafeInput(refused)
    return joined


@contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """A temporary path beside `path`, renamed to `path` when the block ends well and removed when it does not.

    A run that is killed half-way leaves a hidden `.part` file at worst, never a half file under the final name.
    The temporary name keeps the suffix, because encoders choose their format by it.
    """
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{path.parent}: expected a folder to write in, found: {_reason(error)}.") from None
    if path.is_dir():
        raise OutputError(f"{path}: expected the name of a file to write, found a folder; give another name.")
    if not os.access(path.parent, os.W_OK):
        raise OutputError(f"{path.parent}: expected a folder to write in, found no permission; choose another.")
    temporary = path.with_name(f".{path.stem[:80]}.{secrets.token_hex(4)}.part{path.suffix}")
    try:
        yield temporary
        temporary.replace(path)
    except OSError as error:
        # InputError may also be an OSError (MissingInput): that sentence is already for the user.
        if isinstance(error, InputError):
            raise
        raise OutputError(f"{path}: expected to write this file, found: {_reason(error)}.") from error
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()


def write_bytes(path: str | Path, content: bytes) -> Path:
    """Write a whole file atomically; returns its path."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)
    return Path(path)


def write_text(path: str | Path, content: str) -> Path:
    """Write a whole UTF-8 text file atomically, with `\\n` line ends on every system; returns its path."""
    return write_bytes(path, content.encode("utf-8"))


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
