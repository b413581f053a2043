"""One simulated sequence as an iterator: pictures with exact truth, nothing written to disk.

from polypscope.simulator import sequence

for item in sequence(seed=7, frames=50, style="clinical"):
    item.frame.rgb, item.truth.instances, item.truth.depth.values, item.pose
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from polypscope import __version__
from polypscope.records import Camera, DepthKind, DepthMap, Frame, GroundTruth, TruePolyp
from polypscope.records.errors import UsageError
from polypscope.simulator.colon import Colon, Stretch
from polypscope.simulator.ctcolon import CtColon
from polypscope.simulator.forceps import Forceps, draw_forceps
from polypscope.simulator.polyps import MODELS, PolypModel, sample_model, sew_polyp
from polypscope.simulator.renderer import Hits, Lens, cast
from polypscope.simulator.scope import Lumen, NoRoom, Target, fly
from polypscope.simulator.sensor import FovShape, Sensor, Style, fov_mask
from polypscope.simulator.shading import Tissue, shade
from polypscope.simulator.surface import vertex_normals
from polypscope.simulator.tissue import Look, PolypLook, macro_tint, mucosa_texture, polyp_texture

__all__ = ["PlacedPolyp", "Settings", "SimulatedFrame", "SimulatedSequence", "sequence"]

VERSION = 1
RATE_HZ = 25.0
AHEAD_MM = 150.0
_TRIES = 8
PolypSource = Literal["models", "sampled"]


@dataclass(frozen=True)
class Settings:
    """What a simulation is asked to be; everything else follows from the seed.

    Attributes
    ----------
    frames: frames per sequence.
    width, height: picture size in pixels.
    fov_deg: horizontal field of view, one value or a range from which each sequence draws.
    lens: "pinhole" or "fisheye".
    style: "clean" (exact picture) or "clinical" (with everything that spoils real frames).
    fov_shape: black surround: "random", "none", "octagon" or "circle".
    polyps: "models" (the thirty) or "sampled" (new ones for every sequence).
    negatives: share of sequences without any polyp.
    forceps: "none", "proximal" (open jaws beside the polyp) or "contact" (graduated shaft on its apex).
    triangles: about how many triangles the wall has.
    mesh, centerline: files of a CT surface and its centreline instead of a procedural colon.
    centerline_mm: real length of that whole centreline, which sets the scale; None: the files are in mm.
    """

    frames: int = 100
    width: int = 320
    height: int = 320
    fov_deg: float | tuple[float, float] = 78.4
    lens: Literal["pinhole", "fisheye"] = "pinhole"
    style: Style = "clean"
    fov_shape: FovShape = "random"
    polyps: PolypSource = "models"
    negatives: float = 0.15
    forceps: Literal["none", "proximal", "contact"] = "none"
    triangles: int = 150_000
    mesh: str | None = None
    centerline: str | None = None
    centerline_mm: float | None = None

    def __post_init__(self) -> None:
        _require(self.frames >= 1, "frames", "at least 1", self.frames)
        _require(min(self.width, self.height) >= 16 and max(self.width, self.height) <= 4096, "size",
                 "16 to 4096 pixels a side", f"{self.width}x{self.height}")  # fmt: skip
        low, high = self.fov_range
        limit = 150.0 if self.lens == "pinhole" else 170.0
        _require(20 <= low <= high <= limit, "fov", f"20 to {limit:g} degrees for a {self.lens} lens", self.fov_deg)
        _require(0 <= self.negatives <= 1, "negatives", "a share from 0 to 1", self.negatives)
        if (self.mesh is None) != (self.centerline is None):
            raise UsageError("--mesh and --centerline: expected both or neither, found one; give the other as well.")
        if self.centerline_mm is not None:
            _require(self.mesh is not None, "centerline_mm", "it together with --mesh", "no --mesh")
            _require(60 <= self.centerline_mm <= 2600, "centerline_mm", "60 to 2600 mm", self.centerline_mm)
        _require(2_000 <= self.triangles <= 5_000_000, "triangles", "2000 to 5000000", self.triangles)
        for name, known in (
            ("lens", ("pinhole", "fisheye")),
            ("style", ("clean", "clinical")),
            ("fov_shape", ("random", "none", "octagon", "circle")),
            ("polyps", ("models", "sampled")),
            ("forceps", ("none", "proximal", "contact")),
        ):
            _require(getattr(self, name) in known, name, f"one of {', '.join(known)}", getattr(self, name))

    @property
    def fov_range(self) -> tuple[float, float]:
        if isinstance(self.fov_deg, tuple):
            return self.fov_deg
        return float(self.fov_deg), float(self.fov_deg)


def _require(condition: bool, name: str, expected: str, found: object) -> None:
    if not condition:
        raise UsageError(f"{name}: expected {expected}, found {found}; change --{name.replace('_', '-')}.")


@dataclass(frozen=True)
class PlacedPolyp:
    """A polyp in the wall: its truth."""

    id: int
    model: PolypModel
    segment: str
    place: str
    apex: NDArray[np.float64]
    along_mm: float
    look: PolypLook

    def truth(self) -> TruePolyp:
        return TruePolyp(self.id, size_mm=self.model.size_mm, paris=self.model.paris, segment=self.segment)


@dataclass(frozen=True, eq=False)
class SimulatedFrame:
    """One picture and everything that is true of it.

    Attributes
    ----------
    frame: the picture.
    truth: visible polyps, uint16 instance labels and depth in mm along the axis (NaN outside the field of view).
    pose: float64 [4, 4] camera-to-world, mm.
    instrument: bool [H, W], where forceps cover the picture.
    points: marked points of the forceps, rows of `forceps.csv` without the index.
    jpeg: the encoded picture where the style ends in JPEG; decoding it gives `frame.rgb`.
    """

    frame: Frame
    truth: GroundTruth
    pose: NDArray[np.float64]
    instrument: NDArray[np.bool_] | None = None
    points: tuple[dict[str, Any], ...] = ()
    jpeg: bytes | None = None


@lru_cache(maxsize=2)
def _colon(seed: int) -> Colon:
    return Colon(seed)


@lru_cache(maxsize=1)
def _ct_colon(mesh: str, centerline: str, centerline_mm: float | None) -> CtColon:
    return CtColon(Path(mesh), Path(centerline), centerline_mm)


def geometry_of(settings: Settings, seed: int, index: int) -> Colon | CtColon:
    """The colon that a sequence runs through."""
    if settings.mesh is not None and settings.centerline is not None:
        return _ct_colon(settings.mesh, settings.centerline, settings.centerline_mm)
    return _colon(seed * 1000 + index // 4)


@dataclass
class SimulatedSequence:
    """A sequence that is rendered while it is read; reading it again gives the same bytes."""

    settings: Settings
    seed: int
    index: int
    camera: Camera
    stretch: Stretch
    tissue: Tissue
    look: Look
    polyps: tuple[PlacedPolyp, ...]
    poses: NDArray[np.float64]
    subject: str
    motion: str
    segment: str
    lens: Lens
    lumen: Lumen
    forceps: Forceps | None = None
    forceps_frames: range = range(0)
    chosen: tuple[int, ...] | None = None
    fov: NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        s = self.settings
        self.fov = fov_mask(np.random.default_rng([self.seed, self.index, 5]), s.height, s.width, s.fov_shape)

    def _sensor(self) -> Sensor:
        rng = np.random.default_rng([self.seed, self.index, 5])
        s = self.settings
        return Sensor(rng, s.height, s.width, s.style, s.fov_shape, self.look.vignette)

    def __len__(self) -> int:
        return len(self.poses) if self.chosen is None else len(self.chosen)

    def only(self, frames: Iterable[int]) -> SimulatedSequence:
        """Some of the frames, by number and in order, as a camera passing by would have taken them.

        Each is blurred by its own motion, not by the leap from the frame before it in this choice. After a leap the
        exposure is that of the place itself, as if the sensor had had time to adapt.
        """
        return replace(self, chosen=tuple(int(i) for i in np.arange(len(self.poses))[list(frames)]))

    def relit(self, rng: np.random.Generator) -> SimulatedSequence:
        """The same scene under other lamps, wetter or drier, its vessels and grain larger or smaller.

        All of that is drawn as for a new sequence. It costs next to nothing, where a new scene takes half a second.
        """
        look = self.look.relit(rng)
        return replace(self, look=look, tissue=self.tissue.under(look))

    def __iter__(self) -> Iterator[SimulatedFrame]:
        sensor = self._sensor()
        rng = np.random.default_rng([self.seed, self.index, 6])
        last = -1
        for i in range(len(self.poses)) if self.chosen is None else self.chosen:
            if i != last + 1:
                sensor.adapt()
            last, pose, previous = i, self.poses[i], self.poses[i - 1] if i > 0 else None
            hits = Hits.empty(self.camera)
            points = cast(hits, self.lens, self.tissue.vertices, self.tissue.faces, pose)
            light = shade(hits, self.lens, self.tissue, points, pose)
            covered, marks = self._add_forceps(i, pose, hits, light)
            rgb = sensor.expose(light, _shift_px(previous, pose, self.camera), rng, covered)
            yield self._finish(i, pose, hits, rgb, sensor, covered, marks)

    def _add_forceps(
        self, i: int, pose: NDArray[np.float64], hits: Hits, light: NDArray[np.float32]
    ) -> tuple[NDArray[np.bool_] | None, tuple[dict[str, Any], ...]]:
        if self.forceps is None or not self.polyps or i not in self.forceps_frames:
            return None, ()
        polyp = self.polyps[0]
        view = self.forceps.at(pose, polyp.apex, polyp.model.size_mm, self.lumen)
        if view is None:
            return None, ()
        covered, marks = draw_forceps(view, hits, self.lens, light, self.look, len(self.tissue.faces))
        # Forceps that are only there to be in the way carry no truth but their silhouette.
        return covered & self.fov, marks if self.settings.forceps != "none" else ()

    def _finish(
        self,
        i: int,
        pose: NDArray[np.float64],
        hits: Hits,
        rgb: NDArray[np.uint8],
        sensor: Sensor,
        covered: NDArray[np.bool_] | None,
        marks: tuple[dict[str, Any], ...],
    ) -> SimulatedFrame:
        jpeg = None
        if sensor.clinical:
            coded = cv2.imencode(".jpg", rgb[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, sensor.jpeg_quality])[1]
            jpeg = coded.tobytes()
            rgb = cv2.imdecode(coded, cv2.IMREAD_COLOR)[..., ::-1]
        # The extra label at the end serves both "nothing" (-1) and instruments (beyond the tissue).
        labels = np.concatenate([self.stretch.surface.labels, np.zeros(1, np.uint8)])
        instances = np.where(self.fov, labels[np.minimum(hits.face, len(labels) - 1)], 0).astype(np.uint16)
        depth = np.where(self.fov, hits.depth_mm(self.lens), np.nan).astype(np.float32)
        visible = set(np.flatnonzero(np.bincount(instances.ravel(), minlength=256)).tolist())
        truth = GroundTruth(
            i,
            i / RATE_HZ,
            (self.camera.height, self.camera.width),
            tuple(p.truth() for p in self.polyps if p.id in visible),
            instances,
            DepthMap(depth, DepthKind.Z_MM),
        )
        return SimulatedFrame(Frame(i, i / RATE_HZ, np.ascontiguousarray(rgb)), truth, pose, covered, marks, jpeg)

    def _forceps_facts(self) -> dict[str, Any]:
        if self.forceps is None or self.settings.forceps == "none":
            return {}
        return {"forceps_truth": {**self.forceps.truth(), "polyp_id": 1}}

    def describe(self) -> dict[str, Any]:
        """What `sequence.json` says, apart from what is counted while rendering."""
        return {
            "format": "polypsense3d",
            "layout_version": 1,
            "source": "virtual",
            "subject": self.subject,
            "frames": len(self),
            "rate_hz": RATE_HZ,
            "rgb_extension": "jpg" if self.settings.style == "clinical" else "png",
            "depth_unit_mm": 0.01,
            "style": self.settings.style,
            "motion": self.motion,
            "segment": self.segment,
            "polyps": [
                {
                    "id": p.id,
                    "model": p.model.name,
                    "size_mm": p.model.size_mm,
                    "paris": p.model.paris,
                    "segment": p.segment,
                    "place": p.place,
                    "apex_mm": [round(float(v), 4) for v in p.apex],
                }
                for p in self.polyps
            ],
            "forceps": self.settings.forceps,
            **self._forceps_facts(),
            "seed": self.seed,
            "sequence_index": self.index,
            "versions": {"polypscope": __version__, "simulator": VERSION},
        }


def _shift_px(previous: NDArray[np.float64] | None, pose: NDArray[np.float64], camera: Camera) -> tuple[float, float]:
    """How far a point 30 mm ahead moves across the picture from one pose to the next."""
    if previous is None:
        return 0.0, 0.0
    point = previous[:3, 3] + 30 * previous[:3, 2]
    x, y, z = pose[:3, :3].T @ (point - pose[:3, 3])
    if z <= 1:
        return 0.0, 0.0
    return float(camera.fx * x / z), float(camera.fy * y / z)


def sequence(seed: int = 0, index: int = 0, settings: Settings | None = None, **changes: Any) -> SimulatedSequence:
    """Prepare sequence number `index` of the data set `seed`; iterate over it to render.

    Parameters
    ----------
    seed: the data set's seed.
    index: which of its sequences; four neighbours share one colon.
    settings: a `Settings`; or give its fields as keyword arguments.

    >>> frame = next(iter(sequence(seed=1, frames=2, width=32, height=32, triangles=4000)))
    >>> frame.frame.shape
    (32, 32)
    """
    s = settings or Settings(**changes)
    for attempt in range(_TRIES - 1):
        try:
            return _prepare(s, seed, index, attempt)
        except NoRoom:
            # Two limbs of a generated colon sometimes lie in each other: draw another place, from the same seed. A
            # surface that somebody gave is not searched for a stretch that happens to be sound: they should know.
            if s.mesh is not None:
                raise
    return _prepare(s, seed, index, _TRIES - 1)


def _prepare(s: Settings, seed: int, index: int, attempt: int) -> SimulatedSequence:
    rng = np.random.default_rng([seed, index, 2, attempt] if attempt else [seed, index, 2])
    camera = Camera.from_fov(s.width, s.height, float(rng.uniform(*s.fov_range)), s.lens)
    colon = geometry_of(s, seed, index)
    room = colon.last_mm - colon.first_mm
    travel = float(np.clip(s.frames / RATE_HZ * rng.uniform(8, 22), 12, min(260.0, 0.5 * room)))
    start = colon.first_mm + float(rng.uniform(20, max(room - travel - 80, 21)))
    stretch = colon.stretch(start - 25, start + travel + AHEAD_MM, s.triangles)
    look = Look.sample(rng, s.style == "clinical")
    wanted = 0 if rng.random() < s.negatives else int(rng.choice([1, 2, 3], p=[0.6, 0.28, 0.12]))
    if s.forceps != "none":
        wanted = max(wanted, 1)
    stretch, placed = _grow_polyps(rng, stretch, look, s, wanted, index, start, travel)
    surface = stretch.surface
    normals = vertex_normals(surface.vertices, surface.faces)
    tissue = Tissue(
        surface,
        normals,
        macro_tint(surface.vertices, look),
        look,
        mucosa_texture(look),
        polyp_texture(look),
        [p.look for p in placed],
    )
    withdrawal = bool(rng.random() < 0.6)
    targets = [Target(p.along_mm, p.apex, p.model.size_mm) for p in placed]
    lumen = Lumen(surface.vertices, normals)
    poses = fly(
        rng, stretch.along_mm, stretch.centre, stretch.frames, stretch.radius_mm, lumen,
        targets, s.frames, start, start + travel, withdrawal, camera.fx / camera.width,
        2.0 if s.style == "clinical" else 0.5,
    )  # fmt: skip
    return SimulatedSequence(
        s, seed, index, camera, stretch, tissue, look, tuple(placed), poses,
        colon.name, "withdrawal" if withdrawal else "insertion", colon.segment_at(start + travel / 2),
        Lens.of(camera), lumen, *_forceps(rng, s),
    )  # fmt: skip


def _forceps(rng: np.random.Generator, s: Settings) -> tuple[Forceps | None, range]:
    """The forceps that were asked for; or, now and then in clinical style, some that are just in the way."""
    if s.forceps != "none":
        return Forceps.sample(rng, s.forceps), range(s.frames)
    if s.style == "clinical" and rng.random() < 0.06:
        start = int(rng.integers(s.frames))
        return Forceps.sample(rng, "proximal"), range(start, start + int(rng.integers(10, 40)))
    return None, range(0)


def _grow_polyps(
    rng: np.random.Generator,
    stretch: Stretch,
    look: Look,
    s: Settings,
    wanted: int,
    index: int,
    start: float,
    travel: float,
) -> tuple[Stretch, list[PlacedPolyp]]:
    """Place polyps within reach of the passage: on the wall, at folds, at bends."""
    surface = stretch.surface
    normals = vertex_normals(surface.vertices, surface.faces)
    placed: list[PlacedPolyp] = []
    for n in range(wanted):
        # Neighbouring sequences walk through the models, so that thirty sequences show all of them.
        model = MODELS[(index * 7 + n * 11) % 30] if s.polyps == "models" else sample_model(rng)
        for _ in range(60):
            place = str(rng.choice(["wall", "fold", "bend"], p=[0.45, 0.35, 0.2]))
            spots = stretch.places[place]
            along = stretch.vertex_along_mm[spots]
            spots = spots[(along > start + 8) & (along < start + travel + 28)]
            if not len(spots):
                continue
            seed_vertex = int(rng.choice(spots))
            away = [np.linalg.norm(surface.vertices[seed_vertex] - p.apex) for p in placed]
            if any(d < 0.8 * (model.size_mm + p.model.size_mm) + 2 for d, p in zip(away, placed, strict=True)):
                continue
            sewn = sew_polyp(surface, normals, model, seed_vertex, len(placed) + 1, stretch.edge_mm)
            if sewn is None:
                continue
            surface, apex = sewn
            normals = np.concatenate([normals, np.zeros((len(surface.vertices) - len(normals), 3), np.float32)])
            at = float(stretch.vertex_along_mm[seed_vertex])
            segment = stretch.segment[int(np.argmin(np.abs(stretch.along_mm - at)))]
            look_of = look.sample_polyp(rng, model.paris)
            placed.append(PlacedPolyp(len(placed) + 1, model, segment, place, apex, at, look_of))
            break
    return replace(stretch, surface=surface), placed
