"""Video in and out, on clips that the tests make: exact indices and stamps, every odd kind of file, damage, memory."""

from __future__ import annotations

import gc
import json
import random
import shutil
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest

from polypscope.io import camera_device
from polypscope.io.camera_device import CameraSource
from polypscope.io.images import write_image
from polypscope.io.sources import FrameSource, open_source
from polypscope.io.video import VideoSource
from polypscope.io.video_pictures import _from_matrix
from polypscope.io.video_writer import VideoWriter
from polypscope.records import Frame
from polypscope.records.errors import InputError, MissingInput, OutputError, PolypscopeError, UnsafeInput, UsageError

WIDTH, HEIGHT = 96, 64


def _rgb(index: int, width: int = WIDTH, height: int = HEIGHT) -> np.ndarray:
    """A picture that tells its index: a moving edge over a gradient."""
    y, x = np.mgrid[:height, :width]
    grey = (x * 2 + y + index * 7) % 200
    grey[:, : (index * 5) % width] += 40
    return np.repeat(grey.astype(np.uint8)[:, :, None], 3, axis=2)


def make_clip(
    path: Path,
    *,
    stamps: list[int] | None = None,
    count: int = 40,
    codec: str = "libx264",
    pix_fmt: str = "yuv420p",
    size: tuple[int, int] = (WIDTH, HEIGHT),
    options: dict[str, str] | None = None,
    audio: bool = False,
    interlaced: bool = False,
) -> Path:
    """Write a clip with stamps in steps of 1/1000 s, independently of our writer."""
    stamps = stamps if stamps is not None else [40 * i for i in range(count)]
    defaults = {"g": "10", "bf": "2", "preset": "ultrafast"} if codec == "libx264" else {"g": "10"}
    # Matroska draws a random id for every file; without it, the same bytes are damaged in every run.
    with av.open(str(path), "w", options={"fflags": "+bitexact"}) as out:
        stream = out.add_stream(codec, rate=25, options={**defaults, **(options or {})})
        stream.width, stream.height, stream.pix_fmt = *size, pix_fmt
        time_base = Fraction(1, 1000 if codec in ("libx264", "libx264rgb", "ffv1") else 25)
        stream.time_base = stream.codec_context.time_base = time_base
        if interlaced:
            stream.codec_context.flags |= int(av.codec.context.Flags.interlaced_dct)
        sound = out.add_stream("aac", rate=8000) if audio else None
        for index, stamp in enumerate(stamps):
            picture = av.VideoFrame.from_ndarray(_rgb(index, *size), format="rgb24").reformat(format=pix_fmt)
            picture.pts = stamp if time_base == Fraction(1, 1000) else index
            picture.time_base = time_base  # the stream's own changes when the header is written
            out.mux(stream.encode(picture))
        if sound is not None:
            samples = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
            samples.sample_rate = 8000
            out.mux(sound.encode(samples))
            out.mux(sound.encode(None))
        out.mux(stream.encode(None))
    return path


def packet_stamps(path: Path) -> list[float]:
    """Presentation stamps of all packets, in order: what the file itself says, without any decoding."""
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        return sorted(float(p.pts * p.time_base) for p in container.demux(stream) if p.size and p.pts is not None)


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("clips")


VARIABLE = [0, 33, 67, 70, 71, 300, 340, 341, 900, 901, 903, 1500, 1533, 2100, 2101, 2102, 2500, 2540, 2580, 4000]


@pytest.mark.parametrize("suffix", [".mp4", ".mkv", ".mov", ".ts"])
def test_variable_rate_stamps_are_those_of_the_file(clips: Path, suffix: str) -> None:
    path = make_clip(clips / f"variable{suffix}", stamps=VARIABLE)
    with open_source(path) as source:
        frames = list(source)
        assert source.damaged == ()
    assert [frame.index for frame in frames] == list(range(len(VARIABLE)))
    assert [frame.pts_s for frame in frames] == packet_stamps(path)
    offset = frames[0].pts_s
    assert [frame.pts_s - offset for frame in frames] == pytest.approx([t / 1000 for t in VARIABLE], abs=1e-4)


@pytest.mark.parametrize("suffix", [".mp4", ".mkv", ".ts", ".avi"])
def test_stamps_equal_ffprobe(clips: Path, suffix: str) -> None:
    ffprobe = shutil.which("ffprobe")
    if ffprobe is None:
        pytest.skip("ffprobe is not installed; packet stamps are compared in the test above")
    codec = "mpeg4" if suffix == ".avi" else "libx264"
    stamps = None if suffix == ".avi" else VARIABLE
    path = make_clip(clips / f"probe{suffix}", stamps=stamps, codec=codec, options={} if codec == "mpeg4" else None)
    command = [ffprobe, "-v", "quiet", "-select_streams", "v:0", "-show_frames", "-of", "json", str(path)]
    listed = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)["frames"]
    expected = [float(entry.get("best_effort_timestamp_time", "nan")) for entry in listed]
    with open_source(path) as source:
        found = [frame.pts_s for frame in source]
    assert len(found) == len(expected)
    assert all(a == pytest.approx(b, abs=1e-6) for a, b in zip(found, expected, strict=True) if b == b)


@pytest.mark.parametrize(
    ("name", "options", "pixel_format"),
    [
        ("ten-bit.mp4", {"pix_fmt": "yuv420p10le"}, "yuv420p10le"),
        ("odd.mkv", {"codec": "ffv1", "size": (95, 63)}, "yuv420p"),
        ("sound.mp4", {"audio": True}, "yuv420p"),
        ("interlaced.mpg", {"codec": "mpeg2video", "interlaced": True, "options": {"b": "4M"}}, "yuv420p"),
        ("motion-jpeg.avi", {"codec": "mjpeg", "pix_fmt": "yuvj420p", "options": {"q": "2"}}, "yuvj420p"),
        ("lossless-colour.mkv", {"codec": "libx264rgb", "pix_fmt": "rgb24", "options": {"qp": "0"}}, "gbrp"),
    ],
)
def test_kinds_of_files(clips: Path, name: str, options: dict, pixel_format: str) -> None:
    path = make_clip(clips / name, count=12, **options)
    with open_source(path) as source:
        frames = list(source)
        assert len(frames) == 12
        assert source.damaged == ()
        assert source.info.pixel_format == pixel_format
        assert source.info.has_audio == options.get("audio", False)
        width, height = options.get("size", (WIDTH, HEIGHT))
        assert (source.info.width, source.info.height) == (width, height)
        for frame in frames:
            assert frame.shape == (height, width)
            assert np.abs(frame.rgb.astype(int) - _rgb(frame.index, width, height)).mean() < 8
        again = [frame.pts_s for frame in source]
        assert again == [frame.pts_s for frame in frames]


def test_deinterlacing_gives_one_for_one(clips: Path) -> None:
    path = make_clip(clips / "fields.mpg", count=9, codec="mpeg2video", interlaced=True, options={"b": "4M"})
    with open_source(path) as plain:
        stamps = [(frame.index, frame.pts_s) for frame in plain]
    with open_source(path, deinterlace=True) as source:
        assert [(frame.index, frame.pts_s) for frame in source] == stamps
        assert not any("interlaced" in note for note in source.notes)


def test_deinterlacing_removes_comb_lines(clips: Path) -> None:
    path = clips / "comb.mkv"
    with VideoWriter(path, crf=0) as writer:
        for i in range(8):
            fields = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
            fields[::2, : 10 * i] = 255  # an edge that moves on between the upper and the lower field
            fields[1::2, : 10 * i + 5] = 255
            writer.write(Frame(i, i / 25, fields))

    def comb(deinterlace: bool) -> float:
        with open_source(path, deinterlace=deinterlace) as source:
            return float(np.mean([np.abs(np.diff(frame.rgb[..., 0].astype(int), axis=0)).mean() for frame in source]))

    assert comb(True) < comb(False) / 3


def test_rotation_by_the_display_matrix(clips: Path) -> None:
    data = bytearray(make_clip(clips / "upright.mp4", count=3).read_bytes())
    at = data.find(b"tkhd") + 44  # version 0: the matrix follows 40 bytes behind the version
    one = (1 << 16).to_bytes(4, "big")
    minus, zero, last = (-(1 << 16)).to_bytes(4, "big", signed=True), bytes(4), (1 << 30).to_bytes(4, "big")
    data[at : at + 36] = zero + one + zero + minus + zero + zero + zero + zero + last
    turned = clips / "turned.mp4"
    turned.write_bytes(data)
    with open_source(clips / "upright.mp4") as plain, open_source(turned) as source:
        assert (source.info.width, source.info.height, source.info.rotation_deg) == (HEIGHT, WIDTH, 270)
        for a, b in zip(plain, source, strict=True):
            assert (np.rot90(a.rgb, 3) == b.rgb).all()


@pytest.mark.parametrize(
    ("matrix", "expected"),
    [
        ((1, 0, 0, 1), (0, False)),
        ((0, -1, 1, 0), (1, False)),
        ((-1, 0, 0, -1), (2, False)),
        ((0, 1, -1, 0), (3, False)),
        ((-1, 0, 0, 1), (0, True)),
        ((1, 0, 0, -1), (2, True)),
        ((0, 1, 1, 0), (1, True)),
        ((0, -1, -1, 0), (3, True)),
    ],
)
def test_every_display_matrix(matrix: tuple[int, int, int, int], expected: tuple[int, bool]) -> None:
    assert _from_matrix(*matrix) == expected


def _damaged_copies(data: bytes, count: int) -> list[bytes]:
    rng = random.Random(7)
    copies = []
    for i in range(count):
        copy = bytearray(data)
        at = rng.randrange(len(copy))
        if i % 4 == 0:
            del copy[at:]
        elif i % 4 == 1:
            for _ in range(rng.randint(1, 6)):
                copy[rng.randrange(len(copy))] ^= 1 << rng.randrange(8)
        elif i % 4 == 2:
            copy[at : at + 300] = rng.randbytes(len(copy[at : at + 300]))
        else:
            del copy[at : at + rng.randint(1, 300)]
        copies.append(bytes(copy))
    return copies


@pytest.mark.parametrize("suffix", [".mp4", ".mkv"])
def test_fifty_damaged_copies_lose_no_good_frame(clips: Path, tmp_path: Path, suffix: str) -> None:
    sound_path = make_clip(clips / f"sound-copy{suffix}")
    with open_source(sound_path) as source:
        sound = {frame.pts_s: frame for frame in source}
    given = 0
    for number, data in enumerate(_damaged_copies(sound_path.read_bytes(), 50)):
        path = tmp_path / f"{number}{suffix}"
        path.write_bytes(data)
        try:
            with open_source(path) as source:
                found = list(source)
                damaged = source.damaged
        except PolypscopeError:
            found, damaged = [], ()
        given += len(found)
        assert not {frame.index for frame in found} & set(damaged)
        for stamp, rgb in _decodable(path).items():
            if stamp in sound and np.array_equal(rgb, sound[stamp].rgb):
                same = [frame for frame in found if frame.pts_s == stamp and np.array_equal(frame.rgb, rgb)]
                assert same, f"copy {number} lost the good frame at {stamp} s"
    assert given > 500


def _decodable(path: Path) -> dict[float, np.ndarray]:
    """Frames that a plain decoding loop on one core gets out of a file, by stamp."""
    out = {}
    try:
        with av.open(str(path), metadata_errors="replace") as container:
            stream = container.streams.video[0]
            stream.thread_type = "SLICE"
            for packet in container.demux(stream):
                try:
                    for picture in packet.decode():
                        if picture.pts is not None and not picture.is_corrupt:
                            out[float(picture.pts * stream.time_base)] = picture.to_ndarray(format="rgb24")
                except av.error.FFmpegError:
                    continue
    except (av.error.FFmpegError, IndexError):
        pass
    return out


def test_a_damaged_frame_is_skipped_counted_and_named(clips: Path) -> None:
    path = make_clip(clips / "hole.avi", codec="mjpeg", pix_fmt="yuvj420p", options={"q": "2"}, count=20)
    with av.open(str(path)) as container:
        packets = [(p.pos, p.size) for p in container.demux(video=0) if p.size]
    data = bytearray(path.read_bytes())
    for index in (5, 6, 11):
        start, size = packets[index]
        data[start + 8 : start + size] = bytes(size - 8)
    path.write_bytes(data)
    with open_source(path) as source:
        frames = list(source)
        assert source.damaged == (5, 6, 11)
        assert "3 damaged frames skipped: 5–6, 11" in source.notes
    assert [frame.index for frame in frames] == [i for i in range(20) if i not in (5, 6, 11)]
    assert [frame.pts_s for frame in frames] == pytest.approx([frame.index / 25 for frame in frames])


@pytest.mark.parametrize("suffix", [".mkv", ".mp4"])
def test_truncated_file_gives_what_is_there_and_a_note(clips: Path, suffix: str) -> None:
    path = clips / f"whole{suffix}"
    with VideoWriter(path, crf=10) as writer:  # our MP4 has its index in front
        for i in range(60):
            writer.write(Frame(i, i / 25, _rgb(i)))
    data = path.read_bytes()
    cut = clips / f"cut{suffix}"
    cut.write_bytes(data[: len(data) * 6 // 10])
    with open_source(cut) as source:
        frames = list(source)
        assert 20 < len(frames) < 55
        assert [frame.index for frame in frames][:20] == list(range(20))
        assert any("ends early" in note and "truncated" in note for note in source.notes)
    with open_source(path) as source:
        assert len(list(source)) == 60
        assert source.notes == ()


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("notes.txt", b"hello world\n" * 50, "found text"),
        ("empty.mp4", b"", "found an empty file"),
        ("cut.mp4", b"\0\0\0\x20ftypisom" + bytes(100), "index is missing or damaged"),
        ("random.avi", random.Random(0).randbytes(5000), "expected a video"),
        ("play.m3u8", b"#EXTM3U\n#EXTINF:1,\nhttp://127.0.0.1:9/a.ts\n#EXT-X-ENDLIST\n", "expected a video"),
    ],
)
def test_what_is_no_video_gives_one_sentence(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError, match=words):
        list(open_source(path))


def test_missing_sound_only_and_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MissingInput, match="found nothing there"):
        open_source(tmp_path / "no.mp4")
    sound = tmp_path / "sound.mkv"
    with av.open(str(sound), "w") as out:
        stream = out.add_stream("pcm_s16le", rate=8000)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 800), np.int16), format="s16", layout="mono")
        frame.sample_rate = 8000
        out.mux(stream.encode(frame))
    with pytest.raises(InputError, match="found only audio"):
        open_source(sound)
    path = make_clip(tmp_path / "10:30.mp4", count=2)
    assert len(list(open_source(path))) == 2
    monkeypatch.setenv("POLYPSCOPE_MAX_PIXELS", "1000")
    with pytest.raises(UnsafeInput, match="at most 1,000 pixels"):
        open_source(path)


def test_image_folder_is_the_same_kind_of_source(tmp_path: Path) -> None:
    for index in (1, 2, 10, 11):
        write_image(tmp_path / f"{index}.png", _rgb(index))
    (tmp_path / ".DS_Store").write_bytes(b"x")
    damaged = tmp_path / "10.png"
    damaged.write_bytes(damaged.read_bytes()[:-30])
    with open_source(tmp_path, image_fps=10) as source:
        assert isinstance(source, FrameSource)
        frames = list(source)
        assert source.damaged == (2,)
        assert any("10.png" in note and "cut off" in note for note in source.notes)
    assert [(frame.index, frame.pts_s) for frame in frames] == [(0, 0.0), (1, 0.1), (3, 0.3)]
    assert (frames[2].rgb == _rgb(11)).all()


def test_image_folder_without_images(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="found none"):
        open_source(tmp_path)
    write_image(tmp_path / "a.png", _rgb(0))
    with pytest.raises(UsageError, match="a rate above 0"):
        open_source(tmp_path, image_fps=0)


def test_absent_camera_is_named() -> None:
    with pytest.raises(MissingInput, match=r"camera 97: expected a camera at /dev/video97"):
        CameraSource(97)
    with pytest.raises(MissingInput):
        open_source("camera:97")


def test_a_capture_device_gives_frames_from_time_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    # FFmpeg's generator device stands where a camera would: the same interface, without hardware.
    monkeypatch.setitem(camera_device._CAPTURE, sys.platform, "lavfi")
    with CameraSource("testsrc2=size=64x48:rate=20,setpts=PTS+100/TB") as source:
        assert (source.info.width, source.info.height, source.info.kind) == (64, 48, "camera")
        frames = [frame for frame, _ in zip(source, range(5), strict=False)]
        running = iter(source)
        assert next(running).index >= 5  # a camera goes on where it was
    assert list(running) == []
    assert [frame.index for frame in frames] == [0, 1, 2, 3, 4]
    assert [frame.pts_s for frame in frames] == pytest.approx([0, 0.05, 0.1, 0.15, 0.2])


@pytest.mark.parametrize("suffix", [".mp4", ".mkv", ".mov"])
@pytest.mark.parametrize("size", [(96, 64), (95, 63)])
def test_writer_keeps_the_stamps_of_the_source(clips: Path, tmp_path: Path, suffix: str, size: tuple[int, int]) -> None:
    path = make_clip(clips / f"from-{size[0]}.mkv", stamps=VARIABLE, codec="ffv1", size=size)
    out = tmp_path / f"out{suffix}"
    with open_source(path) as source, VideoWriter(out, time_base=source.info.time_base, crf=5) as writer:
        frames = list(source)
        for frame in frames:
            writer.write(frame)
            assert not out.exists()
    assert [p.name for p in tmp_path.iterdir()] == [out.name]
    with open_source(out) as source:
        back = list(source)
        assert source.info.codec == "h264"
    assert [frame.pts_s for frame in back] == [frame.pts_s for frame in frames]
    for a, b in zip(frames, back, strict=True):
        assert np.abs(a.rgb.astype(int) - b.rgb[: size[1], : size[0]]).mean() < 4


def test_a_failed_run_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="stop"), VideoWriter(tmp_path / "a.mp4") as writer:  # noqa: PT012
        writer.write(Frame(0, 0.0, _rgb(0)))
        raise RuntimeError("stop")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(OutputError, match="at least one frame"), VideoWriter(tmp_path / "a.mp4"):
        pass
    with pytest.raises(OutputError, match="resize"), VideoWriter(tmp_path / "a.mp4") as writer:  # noqa: PT012
        writer.write(Frame(0, 0.0, _rgb(0)))
        writer.write(Frame(1, 0.1, _rgb(1, 20, 20)))
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(UsageError, match="ending in"):
        VideoWriter(tmp_path / "a.gif")
    with pytest.raises(UsageError, match="with"):
        VideoWriter(tmp_path / "a.mp4").write(Frame(0, 0.0, _rgb(0)))


def test_equal_stamps_lose_no_frame(tmp_path: Path) -> None:
    with VideoWriter(tmp_path / "a.mp4") as writer:
        for index, pts_s in enumerate([0.0, 0.0, 0.04, 0.02]):
            writer.write(Frame(index, pts_s, _rgb(index)))
    with VideoSource(tmp_path / "a.mp4") as source:
        assert len(list(source)) == 4


def test_read_pictures_are_freed_at_once(clips: Path) -> None:
    path = make_clip(clips / "many.mp4", count=120)
    gc.collect()
    gc.disable()  # a reference cycle would now keep every picture alive
    try:
        with open_source(path) as source:
            count = sum(1 for _ in source)
            # type() and not isinstance(): other libraries keep objects that warn when asked for their class.
            alive = sum(issubclass(type(thing), av.VideoFrame) for thing in gc.get_objects())
    finally:
        gc.enable()
    assert count == 120
    assert alive < 20


def test_a_closed_source_ends_its_iterations(clips: Path) -> None:
    path = make_clip(clips / "early.mp4")
    with open_source(path) as source:
        running, other = iter(source), iter(source)
        assert [next(running).index, next(other).index, next(running).index] == [0, 0, 1]
    assert len(list(running)) < 38
    with pytest.raises(UsageError, match="closed"):
        list(source)
