"""Numbers that were fitted, apart from the code that uses them. All of them come from simulated polyps.

`python recipes/caliper.py` makes every number in this file: the completion from 600 sampled polyps (4 views each), the
interval rules from 300 others (6 views each). Neither set is used to judge anything.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from polypscope.geometry.conformal import Conformal

__all__ = ["COEFFICIENTS", "FRAME", "TRACK", "completion", "monomials"]

Array = NDArray[np.float64]

FRAME = Conformal(1.985, 0.9, 296, "simulated polyps, exact masks, depth noise 0 or 2 %, one view")
TRACK = Conformal(1.002, 0.9, 296, "simulated polyps, exact masks, depth noise 0 or 2 %, six views")

# fmt: off
COEFFICIENTS = np.array(
    [ 0.00116, -0.19431, -0.01075, -0.03572,  0.03698,  0.24808,  0.1136 ,  0.04249,  0.08252,  0.09008,  0.72288,
     -0.41284,  0.12405, -0.42936, -0.89181,  0.53771,  0.81498, -0.0022 , -0.02323, -0.07461,  0.19024, -0.02775,
     -0.26918, -0.00284,  0.04796, -0.07988,  0.09459,  0.14309, -0.14394, -0.12849, -0.00149, -0.21256, -0.09924,
      0.09225,  0.05302, -0.07491,  0.19778,  0.44996, -0.04885, -0.14392,  0.35937,  0.02779, -0.11621,  0.13377,
      0.03042]
)
# fmt: on


def monomials(features: Array) -> Array:
    """1, the features and all their products of two: (..., 8) -> (..., 45)."""
    pairs = [features[..., i] * features[..., j] for i in range(8) for j in range(i, 8)]
    return np.concatenate([np.ones((*features.shape[:-1], 1)), features, np.stack(pairs, axis=-1)], axis=-1)


def completion(features: Array) -> float:
    """log(true size / largest visible chord) expected for a polyp with these features (`caliper.largest_chord`)."""
    if features[1] == 0.0 and features[2] == 0.0:
        # No wall in view to judge by: half of the tangent cone's correction, between limb (all) and rim (none).
        return 0.5 * float(features[0])
    return float(monomials(features) @ COEFFICIENTS)
