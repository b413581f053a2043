"""Both forceps procedures on simulated forceps: error against annotator noise, tilt, depth offset and number of marks.

    python benchmarks/forceps.py

The picture is that of a clinical colonoscope (1157 x 1006 px, 90 degrees); every row is 400 trials.
"""

from __future__ import annotations

import numpy as np

from polypscope.geometry import cameras, forceps
from polypscope.records import Camera, PolypscopeError

CAMERA = Camera.from_fov(1157, 1006, 90.0)
TRIALS = 400


def proximal(noise_px: float, tilt_deg: float, nearer_mm: float, rng: np.random.Generator) -> np.ndarray:
    """Measured over true size of polyps of 2 to 15 mm at 20 mm."""
    out = []
    for _ in range(TRIALS):
        phi, turn, size = np.radians(tilt_deg), rng.uniform(0, np.pi), rng.uniform(2, 15)
        half = 2.5 * np.array([np.cos(phi) * np.cos(turn), np.cos(phi) * np.sin(turn), np.sin(phi)])
        middle = np.array([0.0, 0.0, 20.0 - nearer_mm])
        tips = cameras.project(CAMERA, np.stack([middle - half, middle + half])) + rng.normal(0, noise_px, (2, 2))
        axis = cameras.project(CAMERA, [[-size / 2, 0, 20.0], [size / 2, 0, 20.0]]) + rng.normal(0, noise_px, (2, 2))
        out.append(forceps.proximal(tips, axis).long_mm / size)
    return np.array(out)


def contact(noise_px: float, marks: int, exit_known: bool, rng: np.random.Generator) -> tuple[np.ndarray, float, int]:
    """Relative error of the contact depth, share of intervals that cover it, and trials that were refused."""
    errors, covered, refused = [], 0, 0
    exit_mm = np.array([2.0, 4.0, 0.0])
    while len(errors) + refused < TRIALS:
        tip = np.array([rng.uniform(-5, 5), rng.uniform(-5, 5), rng.uniform(15, 40)])
        phi, turn = np.radians(rng.uniform(10, 70)), rng.uniform(0, 2 * np.pi)
        along = np.array([np.cos(phi) * np.cos(turn), np.cos(phi) * np.sin(turn), -np.sin(phi)])
        if exit_known:
            along = (exit_mm - tip) / np.linalg.norm(exit_mm - tip)
        points = tip + 5.0 * np.arange(marks)[:, None] * along
        pixels = cameras.project(CAMERA, points)
        if points[-1, 2] < 3 or not (pixels > 0).all() or not (pixels < [1156, 1005]).all():
            continue
        try:
            found = forceps.extension(
                pixels + rng.normal(0, noise_px, pixels.shape),
                CAMERA,
                mark_sigma_px=noise_px,
                exit_mm=exit_mm if exit_known else None,
            )
        except PolypscopeError:
            refused += 1
            continue
        errors.append(abs(found.depth_mm / tip[2] - 1))
        covered += found.interval_mm[0] <= tip[2] <= found.interval_mm[1]
    return np.array(errors), covered / max(len(errors), 1), refused


def main() -> None:
    rng = np.random.default_rng(0)
    print("Proximal comparison: measured / true, jaws 5 mm, polyp at 20 mm")
    print(f"{'noise px':>9}{'tilt':>6}{'nearer mm':>11}{'mean':>8}{'SD':>8}{'closed form':>13}")
    for noise, tilt, nearer in (
        *((n, 0.0, 0.0) for n in (0.5, 1.0, 2.0, 4.0)),
        *((1.0, t, 0.0) for t in (10.0, 20.0, 30.0, 45.0)),
        *((1.0, 0.0, d) for d in (-4.0, -2.0, 2.0, 4.0)),
    ):
        ratio = proximal(noise, tilt, nearer, rng)
        expected = forceps.tilt_factor(tilt, 20.0 - nearer) * forceps.offset_factor(nearer, 20.0)
        print(f"{noise:9.1f}{tilt:6.0f}{nearer:11.1f}{ratio.mean():8.3f}{ratio.std():8.3f}{expected:13.3f}")
    print("\nExtension contact: relative error of the depth, tip 15 to 40 mm away, shaft 10 to 70 degrees out of plane")
    print(f"{'marks':>6}{'exit':>6}{'noise px':>10}{'median':>9}{'P90':>8}{'covered':>9}{'refused':>9}")
    for marks, known, noise in (
        *((m, False, 1.0) for m in (3, 4, 5)),
        *((4, False, n) for n in (0.5, 2.0)),
        *((m, True, 1.0) for m in (2, 3, 4)),
    ):
        error, covered, refused = contact(noise, marks, known, rng)
        print(
            f"{marks:6d}{'yes' if known else 'no':>6}{noise:10.1f}{np.median(error):9.2%}{np.quantile(error, 0.9):8.2%}"
            f"{covered:9.1%}{refused:9d}"
        )


if __name__ == "__main__":
    main()
