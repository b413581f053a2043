"""Numbers that were fitted, apart from the code that uses them. All of them come from simulated polyps.

`python recipes/caliper.py` makes every number in this file: the completion from 350 sampled polyps (3 views each), the
interval rules from 200 others (4 views each). Neither set is used to judge anything. `python recipes/caliper.py
predicted` makes the rules for predicted masks and depth.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from polypscope.geometry.conformal import Conformal

__all__ = [
    "COEFFICIENTS",
    "FRAME",
    "PREDICTED_FACTOR",
    "PREDICTED_FRAME",
    "PREDICTED_TRACK",
    "TRACK",
    "completion",
    "monomials",
]

Array = NDArray[np.float64]

FRAME = Conformal(1.985, 0.9, 296, "simulated polyps, exact masks, depth noise 0 or 2 %, one view")
TRACK = Conformal(1.002, 0.9, 296, "simulated polyps, exact masks, depth noise 0 or 2 %, four views")

PREDICTED_FACTOR = 1.0
PREDICTED_FRAME = Conformal(2.5, 0.9, 99, "provisional")
PREDICTED_TRACK = Conformal(1.5, 0.9, 99, "provisional")

# fmt: off
COEFFICIENTS = np.array(
    [ 0.00392, -0.00488, -0.0564 , -0.07296,  0.00493,  0.19939, -0.02163,  0.08265,  0.07674,  0.04028,  0.01915,
     -0.40253,  0.10137,  0.01912, -0.13462, -1.17524, -0.0939 , -0.24147,  0.42799,  0.21171,  0.22447,  0.12494,
     -0.04849, -0.04359,  0.39905, -0.06028, -0.00421,  0.03039, -0.09366, -0.10641,  0.0862 , -0.08597, -0.11219,
      0.19768, -0.08898, -0.13093,  0.00509, -0.03721,  0.05987, -0.25198, -0.06472,  0.01153,  0.05468,  0.00536,
      0.01038, -0.22525, -0.03732,  0.79348,  0.14854,  0.12924, -0.08282, -0.03064,  0.08026, -0.00381,  0.11023,
     -0.02774, -0.06495, -0.00461, -0.00755,  0.01061,  0.0358 , -0.00766,  0.06662, -0.04204, -0.00908,  0.00973]
)
# fmt: on


def monomials(features: Array) -> Array:
    """1, the features and all their products of two: (..., 10) -> (..., 66)."""
    pairs = [features[..., i] * features[..., j] for i in range(10) for j in range(i, 10)]
    return np.concatenate([np.ones((*features.shape[:-1], 1)), features, np.stack(pairs, axis=-1)], axis=-1)


def completion(features: Array) -> float:
    """log(true size / largest visible chord) expected for a polyp with these features (`caliper.largest_chord`)."""
    if features[1] == 0.0 and features[2] == 0.0:
        # No wall in view to judge by: half of the tangent cone's correction, between limb (all) and rim (none).
        return 0.5 * float(features[0])
    return float(monomials(features) @ COEFFICIENTS)
