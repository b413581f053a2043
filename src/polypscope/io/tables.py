"""Tables in and out: CSV for people, Parquet for exact types; the suffix of the file chooses."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from polypscope.io.paths import atomic_path, require_file
from polypscope.records.errors import DamagedInput, InputError, UsageError

__all__ = ["TABLE_SUFFIXES", "read_table", "write_table"]

TABLE_SUFFIXES = frozenset({".csv", ".tsv", ".parquet"})


def read_table(path: str | Path, *, columns: tuple[str, ...] = ()) -> pl.DataFrame:
    """Read a CSV, TSV or Parquet file.

    Parameters
    ----------
    path
        Ends in .csv, .tsv or .parquet.
    columns
        Names that must be there; a missing one is named in the error.
    """
    path = require_file(path, "table")
    suffix = _suffix(path)
    try:
        if suffix == ".parquet":
            table = pl.read_parquet(path)
        else:
            separator = "\t" if suffix == ".tsv" else ","
            # The whole file decides the types: a column may hold whole numbers for ten thousand rows, then a fraction.
            table = pl.read_csv(path, separator=separator, infer_schema_length=None)
    except (pl.exceptions.PolarsError, OSError, ValueError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise DamagedInput(
            f"{path}: expected a {suffix[1:].upper()} table, found: {reason:.160}; export it anew."
        ) from None
    except BaseException as error:  # polars reports some damage as a Rust panic, which is no Exception
        if type(error).__name__ != "PanicException":
            raise
        raise DamagedInput(
            f"{path}: expected a {suffix[1:].upper()} table, found a damaged file; export it anew."
        ) from None
    missing = [name for name in columns if name not in table.columns]
    if missing:
        found = ", ".join(table.columns) or "none"
        raise InputError(f"{path}: expected a column {missing[0]!r}, found {found:.200}; add or rename it.")
    return table


def write_table(path: str | Path, table: pl.DataFrame) -> Path:
    """Write a table as CSV, TSV or Parquet, atomically. Floats keep every digit and read back equal."""
    path = Path(path)
    suffix = _suffix(path)
    with atomic_path(path) as temporary:
        if suffix == ".parquet":
            table.write_parquet(temporary)
        else:
            table.write_csv(temporary, separator="\t" if suffix == ".tsv" else ",")
    return path


def _suffix(path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix not in TABLE_SUFFIXES:
        raise UsageError(f"{path}: expected a table ending in .csv, .tsv or .parquet, found {suffix or 'no ending'!r}.")
    return suffix
