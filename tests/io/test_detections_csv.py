from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polypscope.io.detections_csv import (
    DetectionKind,
    DetectionLayout,
    DetectionRow,
    read_detections_csv,
    write_detections_csv,
)
from polypscope.records import Box
from polypscope.records.errors import InputError


def _file(folder: Path, text: str | bytes) -> Path:
    path = folder / "m.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize(
    ("text", "kind", "rows", "assumed"),
    [
        ("frame,x,y\n3,10,20\n", "point", [(3, 10, 20, None)], []),
        (
            "\ufefffile name ; Y ; X ; Conf\n a.png ; 2 ; 1 ; 0,5\n",
            "point",
            [("a.png", 1, 2, 0.5)],
            ["semicolons", "decimal"],
        ),
        ("3, 10, 20, 0.5\n4, 1, 2, 1\n", "point", [(3, 10, 20, 0.5), (4, 1, 2, 1.0)], ["no header"]),
        ("3,10,20,0.5,polyp\n", "point", [(3, 10, 20, 0.5)], ["frame, x, y, score, label"]),
        ("3\t10\t20\n", "point", [(3, 10, 20, None)], ["tabs"]),
        ("3 10  20\n", "point", [(3, 10, 20, None)], ["blanks"]),
        ("# made by x\n\n3.0,10,20\n", "point", [(3, 10, 20, None)], ["no header"]),
        ("0,1\n1,0\n", "presence", [(0, None, None, None), (1, None, None, None)], ["frame, has_polyp"]),
        ("0,1,0.9\n1,0,0.2\n", "presence", [(0, None, None, 0.9), (1, None, None, 0.2)], ["frame, has_polyp, score"]),
        ("frame,has_polyp\n7,true\n", "presence", [(7, None, None, None)], []),
        ("2,10,20,30,40\n", "box", [(2, 25, 40, None)], ["box_width"]),
        ("2,10,20,30,40,0.25\n", "box", [(2, 25, 40, 0.25)], ["box_width"]),
        ("frame,xmin,ymin,xmax,ymax\n2,10,20,40,60\n", "box", [(2, 25, 40, None)], []),
        ("frame,x,y,w,h,score\n2,10,20,30,40,1\n", "box", [(2, 25, 40, 1.0)], ["upper left corner"]),
        ("frame,x,y,confidence\n", "point", [], ["no detection at all"]),
        ("frame,x,y,score\r\n3,10,20,\r\n", "point", [(3, 10, 20, None)], []),
        ("3,10,20,0.5,\n", "point", [(3, 10, 20, 0.5)], ["no header"]),
        ("frame,x,y\n3,10,20\n".encode("utf-16"), "point", [(3, 10, 20, None)], []),
    ],
)
def test_accepted_forms(tmp_path: Path, text: str | bytes, kind: str, rows: list, assumed: list[str]) -> None:
    read = read_detections_csv(_file(tmp_path, text))
    assert read.kind == kind
    assert [(row.frame, row.x, row.y, row.score) for row in read.rows] == rows
    stated = "; ".join(read.assumptions)
    assert all(words in stated for words in assumed)
    if not assumed:
        assert not read.assumptions


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("frame,x,y\n3,10,20\n4,-1,20\n", 3, "x of 0 or more, found -1"),
        ("frame,x,y\n3,10,nan\n", 2, "a number for y, found 'nan'"),
        ("frame,x,y\n3,inf,3\n", 2, "a number for x, found 'inf'"),
        ("frame,x,y\n3,1_0,3\n", 2, "a number for x, found '1_0'"),
        ("frame,x,y\n3,,\n", 2, "found an empty field; correct it, or leave the line out"),
        ("frame,x,y\n3,abc,4\n", 2, "found 'abc'"),
        ("frame,x,y\n3,10\n", 2, "3 columns, found 2"),
        ("frame,x,y\n3,10,1,2,3\n", 2, "3 columns, found 5"),
        ("frame,x,y\n3.5,10,1\n", 2, "a whole frame number, found 3.5"),
        ("frame,x,y\n-3,10,1\n", 2, "a frame number of 0 or more, found -3"),
        ("frame,x,y\n,10,1\n", 2, "a frame number or image name, found an empty field"),
        ("frame,x,y,score\n3,10,1,95\n", 2, "a confidence from 0 to 1, found 95; rescale"),
        ("frame,x,y,score\n3,10,1,high\n", 2, "a number as confidence, found 'high'"),
        ("frame,x,y\n3,10,1\n4,1,1\n3,10,1\n", 4, "a repetition of line 2; remove one"),
        ("frame,has_polyp\n3,1\n3,0\n", 3, "each frame once"),
        ("frame,has_polyp\n3,maybe\n", 2, "has_polyp as 0 or 1, found 'maybe'"),
        ("frame,score\n3,1\n", 1, "no x and no y"),
        ("x,y,score\n3,1,1\n", 1, "no frame"),
        ("frame,x,x,y\n3,1,1,1\n", 1, "x twice"),
        ("10.5,20.25,0.5\n", 1, "looks like x, y, confidence"),
        ("1,2,3,4,5,6,7\n", 1, "7 columns without a header"),
        ("frame,xmin,ymin\n1,2,3\n", 1, "a box as xmin, ymin with"),
        ("frame,xmin,ymin,xmax,ymax\n1,5,5,2,9\n", 2, "a box wider and higher than 0"),
        ("3\n4\n", 1, "found one column"),
        ("\n\n , ,\n", 1, "only blank lines"),
        (b"frame,x,y\n3,4,5\n\xff\xfe\xfd,1,1\n", 3, "UTF-8"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", 1, "binary data"),
        ('frame,x,y\n"3,4,5\n', 2, "comma-separated values"),
    ],
)
def test_refused_with_file_line_and_advice(tmp_path: Path, text: str | bytes, line: int, words: str) -> None:
    path = _file(tmp_path, text)
    with pytest.raises(InputError) as caught:
        read_detections_csv(path)
    assert str(caught.value).startswith(f"{path}, line {line}: expected ")
    assert words in str(caught.value)


@pytest.mark.parametrize(("content", "words"), [(None, "found nothing there"), (b"", "found an empty file")])
def test_missing_and_empty(tmp_path: Path, content: bytes | None, words: str) -> None:
    path = tmp_path / "m.csv"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=words):
        read_detections_csv(path)


def test_first_frame_duplicates_and_layout(tmp_path: Path) -> None:
    path = _file(tmp_path, "1,10,20\n2,10,20\n2,10,20\n")
    read = read_detections_csv(path, first_frame=1, duplicates="keep")
    assert [row.frame for row in read.rows] == [0, 1, 1]
    read = read_detections_csv(_file(tmp_path, "10,20,1\n30,40,0\n"), layout=DetectionLayout.POINT)
    assert [(row.frame, row.x, row.score) for row in read.rows] == [(0, 10, 1), (1, 30, 0)]


def test_frames_and_videos_of_the_truth(tmp_path: Path) -> None:
    read = read_detections_csv(_file(tmp_path, "video,frame,x,y\nv1,3,1,1\nv1,900,1,1\nv2,0,1,1\n"))
    read.check_frames(range(1000))
    assert read.videos == ("v1", "v2")
    with pytest.raises(InputError, match="line 3: expected a frame from 0 to 9 of video 'v1', found 900"):
        read.check_frames(range(10), video="v1")
    with pytest.raises(InputError, match="line 4: expected a video of the ground truth, found 'v2'; there is v1"):
        read.check_videos({"v1"})
    named = read_detections_csv(_file(tmp_path, "frame,x,y\nimage1.pmg,1,1\n"))
    with pytest.raises(InputError, match=r"line 2.*did you mean 'image1\.png'"):
        named.check_frames({"image1.png", "image2.png"})


_number = st.floats(0, 1e6, allow_nan=False)
_rows = st.lists(
    st.builds(
        DetectionRow,
        frame=st.integers(0, 10**6),
        x=_number,
        y=_number,
        score=st.none() | st.floats(0, 1),
        box=st.none() | st.builds(Box, _number, _number, st.floats(0.1, 1e4), st.floats(0.1, 1e4)),
        label=st.none() | st.text("abc \"',;é", min_size=1).map(str.strip).filter(bool),
        video=st.just("v 1"),
        pts_s=st.none() | _number,
    ),
    max_size=8,
    unique_by=lambda row: row.frame,
)


@given(_rows)
def test_round_trip_is_equal(tmp_path_factory: pytest.TempPathFactory, rows: list[DetectionRow]) -> None:
    path = write_detections_csv(tmp_path_factory.mktemp("csv") / "out.csv", rows)
    read = read_detections_csv(path)
    assert [replace(row, line=0) for row in read.rows] == rows


def test_presence_round_trip(tmp_path: Path) -> None:
    rows = [DetectionRow("a.png", present=True, score=0.5), DetectionRow("b.png", present=False, score=0.25)]
    read = read_detections_csv(write_detections_csv(tmp_path / "p.csv", rows))
    assert read.kind is DetectionKind.PRESENCE
    assert [replace(row, line=0) for row in read.rows] == rows


@given(st.binary(max_size=120) | st.text('0123456789,;\n\t .-xyframe"', max_size=80).map(str.encode))
def test_any_bytes_give_rows_or_one_sentence(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.mktemp("csv") / "m.csv"
    path.write_bytes(content)
    with suppress(InputError):
        assert read_detections_csv(path).path == path
