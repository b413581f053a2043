"""A DICOM video made here is read frame by frame; its identifying tags go nowhere; a wrong one is one sentence."""

from __future__ import annotations

import io
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest

from polypscope.records.errors import DamagedInput, InputError

pydicom = pytest.importorskip("pydicom", reason="pydicom is an extra")


def _h264(frames: int) -> bytes:
    buffer = io.BytesIO()
    with av.open(buffer, "w", format="mp4") as out:
        stream = out.add_stream("libx264", rate=Fraction(25), options={"preset": "ultrafast"})
        stream.width, stream.height, stream.pix_fmt = 96, 64, "yuv420p"
        for n in range(frames):
            picture = np.full((64, 96, 3), (20 + 10 * n, 90, 60), np.uint8)
            out.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        out.mux(stream.encode(None))
    return buffer.getvalue()


def _dicom(path: Path, stream: bytes, syntax: str = "1.2.840.10008.1.2.4.102") -> Path:
    from pydicom.dataset import Dataset, FileMetaDataset
    from pydicom.encaps import encapsulate

    meta = FileMetaDataset()
    meta.TransferSyntaxUID = syntax
    meta.MediaStorageSOPClassUID = "1.2.840.10008.5.1.4.1.1.77.1.1.1"
    meta.MediaStorageSOPInstanceUID = "1.2.3.4"
    data = Dataset()
    data.file_meta = meta
    data.PatientName, data.PatientID = "SECRET^NAME", "SECRET-ID"
    data.SOPClassUID, data.SOPInstanceUID = meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID
    data.Rows, data.Columns, data.NumberOfFrames = 64, 96, 10
    data.SamplesPerPixel, data.PhotometricInterpretation, data.PlanarConfiguration = 3, "YBR_PARTIAL_420", 0
    data.BitsAllocated = data.BitsStored = 8
    data.HighBit, data.PixelRepresentation = 7, 0
    data.PixelData = encapsulate([stream])
    data["PixelData"].VR = "OB"
    pydicom.dcmwrite(path, data, enforce_file_format=True)
    return path


def test_frames_of_a_dicom_video(tmp_path: Path) -> None:
    from polypscope.io.dicom import DicomSource

    path = _dicom(tmp_path / "a.dcm", _h264(10))
    with DicomSource(path) as source:
        frames = list(source)
        copy = source._temporary
        assert copy is not None
        assert copy.exists()
        assert (source.info.width, source.info.height, source.info.name) == (96, 64, "a.dcm")
        assert any("burned" in note for note in source.notes)
    assert not copy.exists()
    assert [f.index for f in frames] == list(range(10))
    assert [int(f.rgb[32, 48, 0]) for f in frames] == pytest.approx([20 + 10 * n for n in range(10)], abs=4)
    assert "SECRET" not in repr(source.info) + " ".join(source.notes)


def test_pictures_that_are_no_video_are_refused(tmp_path: Path) -> None:
    from polypscope.io.dicom import DicomSource

    with pytest.raises(InputError, match="transfer syntax"):
        DicomSource(_dicom(tmp_path / "b.dcm", b"\xff\xd8\xff\xd9", "1.2.840.10008.1.2.4.50"))


@pytest.mark.parametrize("content", [b"not dicom at all" * 20, b""])
def test_damaged_files_are_one_sentence(tmp_path: Path, content: bytes) -> None:
    from polypscope.io.dicom import DicomSource

    path = tmp_path / "c.dcm"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"c\.dcm: expected"):
        DicomSource(path)


def test_broken_stream_inside_is_one_sentence(tmp_path: Path) -> None:
    from polypscope.io.dicom import DicomSource

    with pytest.raises(DamagedInput, match=r"d\.dcm: expected"):
        DicomSource(_dicom(tmp_path / "d.dcm", b"\x00\x01\x02\x03" * 500))
