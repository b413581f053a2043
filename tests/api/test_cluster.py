"""Videos through a real local Ray: the same jobs, the same results, a failing video named."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="ray is the extra `cluster`")
pytest.importorskip("onnx", reason="building the test model needs the train extra")

_SUPPORT = Path(__file__).resolve().parent.parent / "support"

# A process of its own: Ray leaves threads and sockets behind, which warnings-as-errors would blame on other tests.
_SCRIPT = """
import sys
from fractions import Fraction
from pathlib import Path
import av
from colour_model import write_colour_model
from scenes import procedure
from polypscope.api.analyze import analyze

root = Path(sys.argv[1])
model = str(write_colour_model(root))
for name in ("a", "c"):
    with av.open(str(root / f"{name}.mp4"), "w") as out:
        stream = out.add_stream("libx264", rate=Fraction(25), options={"preset": "ultrafast"})
        stream.width, stream.height, stream.pix_fmt = 160, 120, "yuv420p"
        for frame in procedure(30, (120, 160)):
            out.mux(stream.encode(av.VideoFrame.from_ndarray(frame.rgb, format="rgb24")))
        out.mux(stream.encode(None))
(root / "b.mp4").write_bytes(b"no video")
videos = [root / f"{name}.mp4" for name in "abc"]
cluster = analyze(*videos, out=root / "cluster", model=model, overlay=False, jobs=2, cluster="local")
alone = analyze(*videos, out=root / "alone", model=model, overlay=False)
for result in (cluster, alone):
    assert [v.name for v in result.videos] == ["a.mp4", "c.mp4"], result
    assert result.failures[0][0] == "b"
for name in "ac":
    for file in ("polyps.csv", "masks.json", "frames.parquet"):
        same = (root / "cluster" / name / file).read_bytes() == (root / "alone" / name / file).read_bytes()
        assert same, (name, file)
print("SAME")
"""


def test_videos_on_a_local_ray_cluster(tmp_path: Path) -> None:
    source = Path(__file__).resolve().parents[2] / "src"
    environment = {**os.environ, "PYTHONPATH": f"{source}{os.pathsep}{_SUPPORT}", "RAY_DEDUP_LOGS": "0"}
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, str(tmp_path)], capture_output=True, text=True, env=environment, timeout=300
    )
    assert "SAME" in done.stdout, done.stderr[-3000:]
