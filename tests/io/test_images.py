"""Images, masks, depth maps and tables: what is written reads back, and what is broken is refused in one sentence."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import cv2
import numpy as np
import polars as pl
import pytest

from polypscope.io.depth import read_depth, write_depth
from polypscope.io.image_headers import png_text
from polypscope.io.images import decode_image, image_size, read_grey, read_image, read_rgb, write_image
from polypscope.io.masks import (
    MaskThreshold,
    connected_instances,
    read_instances,
    read_mask,
    read_probability,
    write_instances,
    write_mask,
    write_probability,
)
from polypscope.io.tables import read_table, write_table
from polypscope.records import BinaryMask, DepthKind, DepthMap, ProbabilityMap
from polypscope.records.errors import DamagedInput, InputError, OutputError, PolypscopeError, UnsafeInput, UsageError


def _picture(dtype: type = np.uint8, colour: bool = True) -> np.ndarray:
    rng = np.random.default_rng(0)
    shape = (23, 31, 3) if colour else (23, 31)
    return rng.integers(0, np.iinfo(dtype).max, shape, dtype=dtype)


@pytest.mark.parametrize("colour", [True, False])
@pytest.mark.parametrize(
    ("suffix", "dtype"),
    [(".png", np.uint8), (".png", np.uint16), (".tif", np.uint8), (".tiff", np.uint16), (".bmp", np.uint8)],
)
def test_lossless_round_trip(tmp_path: Path, suffix: str, dtype: type, colour: bool) -> None:
    pixels = _picture(dtype, colour)
    path = write_image(tmp_path / f"a{suffix}", pixels)
    back = read_image(path)
    # BMP stores grey as a palette, which decoders return as colour.
    assert back.dtype == dtype
    assert (back == pixels).all() if back.ndim == pixels.ndim else (back == pixels[:, :, None]).all()
    assert image_size(path) == (31, 23)
    assert read_rgb(path).shape == (23, 31, 3)
    assert read_grey(path).shape == (23, 31)


def test_jpeg_keeps_channel_order_and_ignores_orientation(tmp_path: Path) -> None:
    pixels = np.zeros((16, 32, 3), np.uint8)
    pixels[:, :, 0] = 200
    path = write_image(tmp_path / "a.jpg", pixels, quality=95)
    red = read_rgb(path).reshape(-1, 3).mean(axis=0)
    assert red[0] > 190
    assert red[1:].max() < 10
    exif = b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0"
    data = path.read_bytes()
    turned = data[:2] + b"\xff\xe1" + struct.pack(">H", len(exif) + 2) + exif + data[2:]
    assert decode_image(turned, "a.jpg").shape == (16, 32, 3)


def _png_bomb(width: int, height: int) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    body = b"\x89PNG\r\n\x1a\n"
    for name, content in ((b"IHDR", header), (b"IDAT", zlib.compress(b"\0" * 1000)), (b"IEND", b"")):
        body += struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
    return body


def test_decompression_bombs_are_refused_and_the_limit_is_overridable(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnsafeInput, match=r"at most 100,000,000 pixels, found 60000×60000.*POLYPSCOPE_MAX_PIXELS"):
        decode_image(_png_bomb(60000, 60000), "bomb.png")
    small = cv2.imencode(".png", np.zeros((20, 20), np.uint8))[1].tobytes()
    with pytest.raises(UnsafeInput):
        decode_image(small, "a.png", max_pixels=399)
    monkeypatch.setenv("POLYPSCOPE_MAX_PIXELS", "300")
    with pytest.raises(UnsafeInput):
        decode_image(small, "a.png")
    assert decode_image(small, "a.png", max_pixels=400).shape == (20, 20)
    monkeypatch.setenv("POLYPSCOPE_MAX_PIXELS", "many")
    with pytest.raises(UsageError, match="whole number of pixels"):
        decode_image(small, "a.png")


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".tif", ".bmp"])
def test_a_hundred_damaged_copies(suffix: str, capfd: pytest.CaptureFixture[str]) -> None:
    picture = cv2.GaussianBlur(np.random.default_rng(1).integers(0, 255, (60, 80, 3), dtype=np.uint8), (0, 0), 2)
    data = cv2.imencode(suffix, picture)[1].tobytes()
    sound = decode_image(data, "sound")
    rng = np.random.default_rng(2)
    refused = 0
    for i in range(100):
        copy = bytearray(data)
        if i % 2:
            del copy[rng.integers(1, len(copy)) :]
        else:
            for position in rng.integers(0, len(copy), rng.integers(1, 12)):
                copy[position] ^= int(rng.integers(1, 256))
        try:
            pixels = decode_image(bytes(copy), "copy")
        except PolypscopeError:
            refused += 1
        else:
            if suffix == ".png":  # its checksums leave no excuse
                assert (pixels == sound).all()
    assert refused >= 50
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"hello", "found text"),
        (b"<!DOCTYPE html>", "markup such as HTML"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"),
        (b"\xff\xd8\xff\xd9", "JPEG without a picture"),
        (b"\x89PNG\r\n\x1a\n", "a header that ends too early"),
        (b"II*\0\xff\xff\xff\xff", "a header that ends too early"),
        (b"BM", "a header that ends too early"),
        (b"", "an empty file"),
    ],
)
def test_what_is_no_image_is_named(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(content)
    with pytest.raises(InputError, match=words):
        read_image(path)


def test_wrong_output_formats(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="8-bit"):
        write_image(tmp_path / "a.jpg", _picture(np.uint16))
    with pytest.raises(OutputError, match=r"ending in"):
        write_image(tmp_path / "a.gif", _picture())


def test_mask_thresholds_differ_exactly_at_128(tmp_path: Path) -> None:
    path = write_image(tmp_path / "m.png", np.array([[0, 1, 127, 128, 129, 255]], np.uint8))
    counts = {name: read_mask(path, name).area_px for name in MaskThreshold}
    assert counts == {MaskThreshold.ABOVE_128: 2, MaskThreshold.AT_LEAST_128: 3, MaskThreshold.ABOVE_0: 5}
    deep = write_image(tmp_path / "d.png", np.array([[0, 1, 128 * 257, 65535]], np.uint16))
    assert read_mask(deep, MaskThreshold.ABOVE_128).area_px == 1
    assert read_mask(deep, MaskThreshold.ABOVE_0).area_px == 3


def test_masks_instances_and_probabilities_round_trip(tmp_path: Path) -> None:
    mask = BinaryMask(_picture(colour=False) > 100)
    assert (read_mask(write_mask(tmp_path / "m.png", mask)).values == mask.values).all()
    labels = connected_instances(mask)
    assert (read_instances(write_instances(tmp_path / "i.png", labels)) == labels).all()
    many = labels + np.uint16(40000)
    assert (read_instances(write_instances(tmp_path / "n.png", many)) == many).all()
    levels = ProbabilityMap((np.arange(256, dtype=np.float32) / np.float32(255)).reshape(16, 16))
    assert (read_probability(write_probability(tmp_path / "p.png", levels)).values == levels.values).all()
    fine = read_probability(write_probability(tmp_path / "q.png", levels, bits=16)).values
    assert np.abs(fine - levels.values).max() <= 0.5 / 65535 + 1e-7


def test_depth_carries_unit_and_kind(tmp_path: Path) -> None:
    values = np.array([[0.001, 12.34, np.nan], [655.35, 0.01, 99.996]], np.float32)
    path = write_depth(tmp_path / "d.png", DepthMap(values, DepthKind.RAY_MM))
    assert png_text(path.read_bytes()) == {"depth_unit_mm": "0.01", "depth_kind": "ray_mm"}
    back = read_depth(path)
    assert back.kind is DepthKind.RAY_MM
    assert np.isnan(back.values[0, 2])
    assert np.allclose(back.values, [[0.01, 12.34, np.nan], [655.35, 0.01, 100.0]], equal_nan=True)
    with pytest.raises(UsageError, match=r"expected unit_mm 0\.01 as stated"):
        read_depth(path, unit_mm=1.0)
    with pytest.raises(UsageError, match="expected kind ray_mm"):
        read_depth(path, kind=DepthKind.Z_MM)
    with pytest.raises(OutputError, match="use a coarser unit"):
        write_depth(path, DepthMap(np.full((2, 2), 700, np.float32), DepthKind.Z_MM))


def test_depth_of_others_needs_a_unit(tmp_path: Path) -> None:
    path = write_image(tmp_path / "d.png", np.array([[0, 500]], np.uint16))
    with pytest.raises(UsageError, match="--depth-unit"):
        read_depth(path)
    depth = read_depth(path, unit_mm=0.1)
    assert depth.kind is DepthKind.Z_MM
    assert depth.values[0, 1] == np.float32(50)
    with pytest.raises(DamagedInput, match="found 8-bit grey"):
        read_depth(write_image(tmp_path / "e.png", np.ones((2, 2), np.uint8)), unit_mm=1)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.uint16, np.int32])
def test_depth_in_arrays_is_in_mm_unless_said_otherwise(dtype: type, tmp_path: Path) -> None:
    none = 0 if dtype is np.uint16 else -4
    np.save(tmp_path / "d.npy", np.array([[0, 12, 30], [7, none, 655]], dtype))
    depth = read_depth(tmp_path / "d.npy")
    assert depth.kind is DepthKind.Z_MM
    np.testing.assert_array_equal(depth.values, [[np.nan, 12, 30], [7, np.nan, 655]])
    scaled = read_depth(tmp_path / "d.npy", unit_mm=0.1, kind=DepthKind.RAY_MM)
    assert scaled.kind is DepthKind.RAY_MM
    np.testing.assert_allclose(scaled.values, depth.values * 0.1, rtol=1e-6)
    with pytest.raises(UsageError, match="above 0"):
        read_depth(tmp_path / "d.npy", unit_mm=0)


def test_arrays_without_depth_are_refused(tmp_path: Path) -> None:
    def saved(array: object) -> Path:
        np.save(tmp_path / "d.npy", array)  # type: ignore[arg-type]
        return tmp_path / "d.npy"

    np.testing.assert_array_equal(read_depth(saved(np.array([[np.inf, 1e300, 5.0]]))).values, [[np.nan, np.nan, 5]])
    with pytest.raises(DamagedInput, match=r"found float64 of shape \(2, 2, 1\)"):
        read_depth(saved(np.ones((2, 2, 1))))
    with pytest.raises(DamagedInput, match="found bool of shape"):
        read_depth(saved(np.ones((2, 2), bool)))
    with pytest.raises(UnsafeInput, match="at most 3 pixels"):
        read_depth(saved(np.ones((2, 2))), max_pixels=3)
    whole = saved(np.ones((20, 20))).read_bytes()
    with pytest.raises(DamagedInput, match="expected a NumPy array"):
        read_depth(saved(np.array([{}], object)))  # Python objects are code from a stranger
    np.savez(tmp_path / "a.npz", np.ones((2, 2)))
    for data in (whole[:-1], whole[:9], b"text", (tmp_path / "a.npz").read_bytes()):
        (tmp_path / "d.npy").write_bytes(data)
        with pytest.raises(DamagedInput, match="expected a NumPy array"):
            read_depth(tmp_path / "d.npy")


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet"])
def test_tables_round_trip(tmp_path: Path, suffix: str) -> None:
    table = pl.DataFrame({"name": ["a", "b,c", 'd"é'], "value": [0.1, 1 / 3, 1e-300], "count": [1, 2, 3]})
    path = write_table(tmp_path / f"t{suffix}", table)
    assert read_table(path, columns=("name",)).equals(table)
    with pytest.raises(InputError, match="expected a column 'size', found name, value, count"):
        read_table(path, columns=("size",))


@pytest.mark.parametrize(
    ("name", "content"), [("a.parquet", b"PAR1 no"), ("a.csv", b"a,b\n1,2,3,4\n"), ("a.csv", b"\n")]
)
def test_damaged_tables_are_refused(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DamagedInput, match="table"):
        read_table(tmp_path / name)
    with pytest.raises(UsageError, match="ending"):
        write_table(tmp_path / "a.xls", pl.DataFrame())
