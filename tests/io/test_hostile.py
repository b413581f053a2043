"""Readers given arbitrary bytes: an answer or one sentence, never anything else."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polypscope.io.coco import read_coco
from polypscope.io.image_headers import HeaderError, read_header
from polypscope.io.images import decode_image
from polypscope.io.paths import safe_join
from polypscope.io.sources import open_source
from polypscope.io.tables import read_table
from polypscope.records.errors import PolypscopeError, UnsafeInput

_MAGIC = st.sampled_from(
    [b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", b"\xff\xd8\xff\xe0\0\x10JFIF", b"II*\0\x08\0\0\0", b"MM\0+", b"BM", b"RIFF", b""]
)
_BYTES = st.tuples(_MAGIC, st.binary(max_size=200)).map(b"".join)


@given(_BYTES)
def test_any_image_bytes(data: bytes) -> None:
    with suppress(PolypscopeError):
        assert decode_image(data, "any").ndim in (2, 3)
    with suppress(HeaderError):
        header = read_header(data)
        assert header.width > 0
        assert header.height > 0


_KEYS = [
    *("images", "annotations", "categories", "id", "width", "height", "file_name", "image_id"),
    *("bbox", "segmentation", "counts", "size", "score", "name", "info"),
]
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 10**20) | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(_KEYS),
            inner,
            max_size=6,
        )
    ),
    max_leaves=25,
)


@given(_JSON)
def test_any_json_as_coco(tmp_path_factory: pytest.TempPathFactory, content: object) -> None:
    path = tmp_path_factory.mktemp("json") / "a.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    with suppress(PolypscopeError):
        assert len(read_coco(path).by_image()) == len(read_coco(path).images)


@settings(max_examples=40)
@given(st.binary(max_size=150), st.sampled_from([".csv", ".tsv", ".parquet"]))
def test_any_table_bytes(tmp_path_factory: pytest.TempPathFactory, data: bytes, suffix: str) -> None:
    path = tmp_path_factory.mktemp("table") / f"a{suffix}"
    path.write_bytes(data)
    with suppress(PolypscopeError):
        assert read_table(path).width >= 0


_STARTS = st.sampled_from(
    [b"", b"\0\0\0\x18ftypmp42", b"\x1aE\xdf\xa3", b"RIFF\0\0\0\0AVI LIST", b"G", b"\0\0\x01\xba", b"FLV"]
)


@settings(max_examples=60)
@given(st.tuples(_STARTS, st.binary(max_size=400)).map(b"".join))
def test_any_video_bytes(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("video") / "a.mp4"
    path.write_bytes(data)
    with suppress(PolypscopeError):
        assert list(open_source(path))


@given(st.text(max_size=30))
def test_any_name_stays_inside_the_root(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    root = tmp_path_factory.getbasetemp()
    with suppress(UnsafeInput, OSError):
        assert safe_join(root, name).resolve().is_relative_to(root.resolve())
