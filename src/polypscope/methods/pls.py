"""PLS (Polyp Localize and Spot): is there a polyp, by what the picture resembles; and where, by elliptical contrast.

Detection is a search: pictures of the training set vote for their own class, the nearer the rank the heavier, once by
JCD and once by Tamura's features. Localisation is a chain of filters: YCbCr, borders and sub-images removed, flares
masked, low pass; then the energy of a place is how much an ellipse there differs from the ring around it, the best over
several sizes and angles. The four highest places are reported, as the team did.

The team published no details beyond the challenge's paper. Ours: votes of 1/rank among the nearest `NEIGHBOURS`, made
fair to the rarer class; ellipses that are brighter than their ring, weighed with how far their colour differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray
from scipy import fft

from polypscope.methods.global_features import JCD, TAMURA, jcd, tamura, tanimoto
from polypscope.methods.method import Look, Method, check_frame
from polypscope.methods.peaks import maxima
from polypscope.methods.tissue import find_highlights, find_view, shrink, standard_size
from polypscope.methods.trained import read_arrays, write_arrays
from polypscope.records import Detection
from polypscope.records.errors import InputError

__all__ = ["Pls", "elliptical_energy", "train_pls"]

NEIGHBOURS = 30
LOCATIONS = 4
_FINE_PX, _COARSE = 192, 3  # side of the picture that is masked, and how much smaller the one that is searched
RADII_PX = (5.0, 8.0, 12.0, 17.0)
SHAPES = ((1.0, 0.0), (1.5, 0.0), (1.5, np.pi / 4), (1.5, np.pi / 2), (1.5, 3 * np.pi / 4))
_FULL = 4.0  # contrast, in standard deviations of the picture, that counts as full energy


class Pls(Method):
    """The trained method: features of the training pictures and whether each shows a polyp."""

    def __init__(self, jcds: NDArray[np.float64], tamuras: NDArray[np.float64], polyp: NDArray[np.bool_]) -> None:
        self.jcds, self.tamuras, self.polyp = jcds, tamuras, polyp
        self._spread = np.maximum(tamuras.std(axis=0), 1e-6)

    def presence(self, rgb: NDArray[np.uint8]) -> float:
        """Share of the votes, made fair to the rarer class, that say there is a polyp."""
        colour = tanimoto(jcd(rgb), self.jcds)
        texture = (np.abs(self.tamuras - tamura(rgb)) / self._spread).mean(axis=1)
        return (rank_votes(colour, self.polyp) + rank_votes(texture, self.polyp)) / 2

    def look(self, rgb: NDArray[np.uint8]) -> Look:
        check_frame(rgb)
        energy = elliptical_energy(rgb)
        height, width = rgb.shape[:2]
        whole = np.clip(cv2.resize(energy, (width, height), interpolation=cv2.INTER_LINEAR), 0, 1).astype(np.float32)
        present = self.presence(rgb)
        if present < 0.5:
            return Look((), whole)
        scale_x, scale_y = width / energy.shape[1], height / energy.shape[0]
        found = tuple(
            Detection(((x + 0.5) * scale_x - 0.5, (y + 0.5) * scale_y - 0.5), score=min(1.0, present * value))
            for x, y, value in maxima(energy, 6, LOCATIONS, 0.01)
        )
        return Look(found, whole)

    def save(self, path: Path) -> Path:
        """Write the trained method as .npz."""
        arrays = {"jcd": self.jcds.astype(np.float32), "tamura": self.tamuras.astype(np.float32), "polyp": self.polyp}
        return write_arrays(path, "pls", arrays)

    @classmethod
    def load(cls, path: Path) -> Pls:
        """Read what `save` wrote."""
        a = read_arrays(path, "pls", {"jcd": ("n", JCD), "tamura": ("n", TAMURA), "polyp": ("n",)})
        return cls(a["jcd"].astype(np.float64), a["tamura"].astype(np.float64), a["polyp"].astype(np.bool_))


def rank_votes(distance: NDArray[np.float64], polyp: NDArray[np.bool_]) -> float:
    """Share of polyp among the nearest, the k-th of them with a vote of 1/k over the size of its class.

    >>> round(rank_votes(np.array([0.1, 0.2, 0.3, 0.4]), np.array([True, False, True, False])), 3)
    0.64
    """
    nearest = np.argsort(distance, kind="stable")[:NEIGHBOURS]
    votes = 1 / np.arange(1, len(nearest) + 1)
    votes = votes / np.where(polyp[nearest], polyp.sum(), (~polyp).sum())
    return float(votes[polyp[nearest]].sum() / votes.sum())


def elliptical_energy(rgb: NDArray[np.uint8]) -> NDArray[np.float32]:
    """How much an ellipse around each place differs from its ring, float32 (h, w) in [0, 1] at the coarse size."""
    fine = standard_size(rgb, _FINE_PX)
    view = find_view(fine)
    usable = (view & ~find_highlights(fine)).astype(np.float32)
    size = (max(8, round(fine.shape[1] / _COARSE)), max(8, round(fine.shape[0] / _COARSE)))
    planes = cv2.cvtColor(fine, cv2.COLOR_RGB2YCrCb).astype(np.float32)
    weight = cv2.resize(usable, size, interpolation=cv2.INTER_AREA)
    # Low pass and smaller at once, with only what is usable in the mean.
    filled = (
        cv2.resize(planes * usable[..., None], size, interpolation=cv2.INTER_AREA) / np.maximum(weight, 1e-6)[..., None]
    )
    inside_view = cv2.resize(shrink(view, 2).astype(np.uint8), size, interpolation=cv2.INTER_NEAREST) > 0
    if weight.sum() < 16:
        return np.zeros(weight.shape, np.float32)
    spread = np.array([filled[..., c][weight > 0.5].std() if (weight > 0.5).any() else 0.0 for c in range(3)])
    spread = np.maximum(spread, 2.0)  # a flat picture is not made of contrast by its noise
    padded = tuple(fft.next_fast_len(side + 2 * _reach(), real=True) for side in weight.shape)
    sources = [weight, *(weight * filled[..., c] / spread[c] for c in range(3))]
    spectra = np.stack([fft.rfft2(s.astype(np.float32), padded) for s in sources])
    best = np.zeros(weight.shape, np.float32)
    for disc, ring in _kernels(padded):
        inner, outer = (
            fft.irfft2(spectra * kernel, padded)[:, : weight.shape[0], : weight.shape[1]] for kernel in (disc, ring)
        )
        difference = inner[1:] / np.maximum(inner[0], 1e-3) - outer[1:] / np.maximum(outer[0], 1e-3)
        brighter = np.maximum(difference[0], 0)
        contrast = brighter * (1 + np.hypot(difference[1], difference[2]))
        known = (inner[0] > 0.5) & (outer[0] > 0.35)  # most of the ellipse and some of its ring must be mucosa
        best = np.maximum(best, np.where(known, contrast, 0))
    energy = np.minimum(best / _FULL, 1.0) * inside_view
    return np.asarray(cv2.GaussianBlur(energy.astype(np.float32), (0, 0), 1.0), dtype=np.float32)


def _reach() -> int:
    """Half of the longest axis of the largest ring."""
    return int(np.ceil(RADII_PX[-1] * np.sqrt(1.5) * 1.5)) + 1


@lru_cache(maxsize=8)
def _kernels(padded: tuple[int, int]) -> list[tuple[NDArray[np.complex64], NDArray[np.complex64]]]:
    """Spectra of the mean over each ellipse and over the ring that is half as wide again, centred on the origin."""
    reach = _reach()
    y, x = np.mgrid[-reach : reach + 1, -reach : reach + 1].astype(np.float64)
    out = []
    for radius in RADII_PX:
        for aspect, angle in SHAPES:
            along = x * np.cos(angle) + y * np.sin(angle)
            across = y * np.cos(angle) - x * np.sin(angle)
            distance = np.hypot(along / np.sqrt(aspect), across * np.sqrt(aspect)) / radius
            pair = []
            for mask in (distance <= 0.9, (distance > 1.1) & (distance <= 1.5)):
                kernel = np.zeros(padded, np.float32)
                kernel[: 2 * reach + 1, : 2 * reach + 1] = mask / max(mask.sum(), 1)
                pair.append(fft.rfft2(np.roll(kernel, (-reach, -reach), axis=(0, 1))))
            out.append((pair[0], pair[1]))
    return out


def train_pls(
    pictures: Iterable[tuple[NDArray[np.uint8], NDArray[np.bool_]]], *, say: Callable[[str], None] = lambda text: None
) -> Pls:
    """Learn from frames, uint8 RGB (H, W, 3), with their masks, bool (H, W); an empty mask is a frame without polyp."""
    jcds, tamuras, polyp = [], [], []
    for rgb, mask in pictures:
        jcds.append(jcd(rgb))
        tamuras.append(tamura(rgb))
        polyp.append(bool(mask.any()))
    with_polyp = sum(polyp)
    if not 0 < with_polyp < len(polyp):
        raise InputError(
            f"training: expected pictures with and without polyp, found {with_polyp} with and "
            f"{len(polyp) - with_polyp} without; add the other kind (an empty mask says that there is none)."
        )
    method = Pls(np.stack(jcds), np.stack(tamuras), np.array(polyp))
    say(f"{len(polyp)} pictures, {len(polyp) - with_polyp} of them without polyp")
    return method
