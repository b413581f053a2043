"""Numbers that were fitted, apart from the code that uses them. All of them come from simulated polyps.

`python recipes/caliper.py` makes the completion from 350 sampled polyps (3 views each) and the interval rules from 200
others (4 views each); neither set is used to judge anything. `python recipes/caliper.py predicted` makes the rules for
predicted masks and depth.
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

# These two were fitted with the coefficients before the present ones (300 polyps x 6 views); their coverage with the
# present ones is what benchmarks/caliper.py prints.
FRAME = Conformal(1.985, 0.9, 296, "simulated polyps, exact masks, depth noise 0 or 2 %, one view")
TRACK = Conformal(1.002, 0.9, 296, "simulated polyps, exact masks, depth noise 0 or 2 %, six views")

# Measured by `python recipes/caliper.py predicted`: the networks draw polyps smaller than they are, and their scale
# differs by lens.
PREDICTED_FACTOR = {"pinhole": 1.143, "fisheye": 1.131}
PREDICTED_FRAME = Conformal(1.832, 0.9, 372, "simulated polyps, masks and depth of the shipped models")
PREDICTED_TRACK = Conformal(1.085, 0.9, 372, "simulated polyps, masks and depth of the shipped models")

# fmt: off
COEFFICIENTS = np.array(
    [ 0.0268 , -0.21572,  0.0135 , -0.03362, -0.00989, -0.23849,  0.00484, -0.03238, -0.01051,  0.00935,  0.03505,
      0.7539 ,  0.59973, -0.33303,  0.36838,  0.26842, -0.4963 , -0.3258 ,  0.76215, -0.19685, -0.03745,  0.02888,
      0.00291,  0.02377,  0.27171, -0.06471, -0.0979 ,  0.07614, -0.09805, -0.05261,  0.0692 , -0.1188 , -0.0036 ,
      0.14125,  0.05203, -0.17192,  0.06325, -0.08022,  0.06756,  0.15155, -0.01884,  0.11387,  0.00393,  0.03724,
     -0.04777, -0.10828,  0.60976,  0.07691,  0.06924, -0.02111, -0.26568, -0.05128,  0.11547, -0.00791,  0.03356,
     -0.11677,  0.00503, -0.04378,  0.0567 ,  0.04394,  0.10883, -0.04978,  0.06784,  0.01925, -0.02284,  0.03731]
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
