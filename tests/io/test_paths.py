from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polypscope.io.paths import (
    atomic_path,
    list_files,
    natural_key,
    read_text,
    require_file,
    require_folder,
    safe_join,
    write_text,
)
from polypscope.records.errors import DamagedInput, InputError, MissingInput, OutputError, UnsafeInput


@given(st.lists(st.integers(0, 10**6), unique=True))
def test_numbers_in_names_sort_as_numbers(numbers: list[int]) -> None:
    names = [f"case_M-{number}_a.png" for number in numbers]
    assert sorted(names, key=natural_key) == [f"case_M-{number}_a.png" for number in sorted(numbers)]


@given(st.lists(st.text(max_size=12)))
def test_any_names_have_an_order(names: list[str]) -> None:
    assert sorted(names, key=natural_key) == sorted(sorted(names, reverse=True), key=natural_key)


def test_listing_leaves_out_strays(tmp_path: Path) -> None:
    for name in ("10.PNG", "9.png", ".DS_Store", "._9.png", "Thumbs.db", "notes.txt"):
        (tmp_path / name).write_text("x")
    (tmp_path / "1.png").mkdir()
    assert [path.name for path in list_files(tmp_path, [".png"])] == ["9.png", "10.PNG"]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    target = write_text(tmp_path / "a.txt", "old")
    with pytest.raises(RuntimeError), atomic_path(target) as temporary:  # noqa: PT012
        temporary.write_text("half")
        raise RuntimeError
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]  # noqa: PTH208
    with atomic_path(target) as temporary:
        assert temporary.suffix == ".txt"
        temporary.write_text("new")
        assert target.read_text() == "old"
    assert target.read_text() == "new"


def test_where_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(OutputError, match="expected a folder to write in"):
        write_text(tmp_path / "file" / "a.txt", "x")
    with pytest.raises(OutputError, match="found a folder"):
        write_text(tmp_path, "x")


def test_required_paths_say_what_they_found(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    cases = [
        (tmp_path / "no", MissingInput, "nothing there"),
        (tmp_path, InputError, "found a folder"),
        (tmp_path / "empty", InputError, "empty file"),
        (tmp_path / "a\0b", InputError, "null"),
    ]
    for path, kind, words in cases:
        with pytest.raises(kind, match=words):
            require_file(path, "video")
    with pytest.raises(MissingInput, match="expected an image, found nothing"):
        require_file(tmp_path / "no", "image")
    with pytest.raises(InputError, match="found a file"):
        require_folder(tmp_path / "empty")


def test_text_may_be_empty_but_must_be_text(tmp_path: Path) -> None:
    path = tmp_path / "names.txt"
    path.write_text("")
    assert read_text(path) == ""
    path.write_bytes("Härte\n".encode())
    assert read_text(path) == "Härte\n"
    path.write_bytes("Härte\n".encode("latin-1"))
    with pytest.raises(DamagedInput, match=r"expected text in UTF-8, found another encoding .*\(byte 1\)"):
        read_text(path)


def test_links_out_of_the_root_are_refused(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "secret").write_text("x")
    (root / "link").symlink_to(tmp_path / "secret")
    (root / "fine").write_text("x")
    assert safe_join(root, "./fine") == root / "fine"
    with pytest.raises(UnsafeInput):
        safe_join(root, "link")
