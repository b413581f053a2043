"""Detections on disk frame by frame, read while the stream is still open."""

from __future__ import annotations

from pathlib import Path

import pytest

from polypscope.io.detections_stream import DetectionsStream
from polypscope.records import Detection
from polypscope.records.errors import OutputError


def test_every_frame_is_on_disk_before_the_next(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "out.csv"
    with DetectionsStream(path) as stream:
        assert path.read_bytes() == b"frame,x,y,score\n"
        stream.write("clip", 0, [Detection((1.26, 30.0), score=0.123456), Detection((4, 5))])
        assert path.read_bytes() == b"frame,x,y,score\n0,1.3,30.0,0.1235\n0,4.0,5.0,\n"
        stream.write("clip", 1, [])
        stream.write("clip", "b, c", [Detection((0, 0), score=1.0)])
        assert path.read_bytes().splitlines()[3:] == [b'"b, c",0.0,0.0,1.0000']


def test_several_videos_have_a_column(tmp_path: Path) -> None:
    with DetectionsStream(tmp_path / "out.csv", videos=True) as stream:
        stream.write("clip", 7, [Detection((2, 3), score=0.5)])
    assert (tmp_path / "out.csv").read_text() == "video,frame,x,y,score\nclip,7,2.0,3.0,0.5000\n"


def test_a_place_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="expected a file to write, found: Is a directory; choose another"):
        DetectionsStream(tmp_path).__enter__()
