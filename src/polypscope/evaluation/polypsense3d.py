"""Tables 4 to 8 of PolypSense3D as published, marked as such, with what does not add up in them.

Facts for comparison only: nothing here was measured by this software, and nothing here is a target. Table 3
(segmentation) is included because its data-set labels are shifted in the paper; `data_set` is what the rows must belong
to (each block holds seven methods and ends with SAM2-UNet), `printed_as` is what the table says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["CITATION", "INCONSISTENCIES", "TABLE_3", "TABLE_4", "TABLE_5", "TABLE_6", "TABLE_7", "TABLE_8", "Published"]

CITATION: Final = (
    "Liu et al., PolypSense3D: A Multi-Source Benchmark Dataset for Depth-Aware Polyp Size Measurement in Endoscopy, "
    "NeurIPS 2025 Datasets and Benchmarks."
)


@dataclass(frozen=True, slots=True)
class Published:
    """A published table: rows as printed, and remarks of ours."""

    title: str
    rows: tuple[dict[str, float | str], ...]
    remarks: tuple[str, ...] = ()


_METHODS: Final = ("MSNet", "PraNet", "SAM", "MobileSAM", "VM-UNet", "ASPS", "SAM2-UNet")
_SEGMENTATION: Final = {
    "virtual": (
        (0.9301, 0.9000, 0.9816, 0.9169, 0.9412),
        (0.9062, 0.8525, 0.9733, 0.8676, 0.9062),
        (0.8803, 0.8180, 0.8552, 0.9418, 0.8803),
        (0.8341, 0.7054, 0.8776, 0.8334, 0.8341),
        (0.8432, 0.7288, 0.9172, 0.8044, 0.8432),
        (0.8951, 0.8321, 0.9409, 0.8717, 0.8951),
        (0.9399, 0.9010, 0.9723, 0.9243, 0.9428),
    ),
    "phantom": (
        (0.8812, 0.8432, 0.9425, 0.8457, 0.8847),
        (0.8523, 0.8028, 0.9106, 0.8138, 0.8523),
        (0.8693, 0.8218, 0.9603, 0.8351, 0.8693),
        (0.6874, 0.5091, 0.6304, 0.9887, 0.6874),
        (0.2546, 0.1459, 0.3631, 0.1960, 0.2546),
        (0.7526, 0.6834, 0.7599, 0.7649, 0.7540),
        (0.8983, 0.8501, 0.9981, 0.8513, 0.9064),
    ),
    "clinical": (
        (0.6989, 0.6250, 0.7441, 0.7201, 0.7068),
        (0.7183, 0.6316, 0.7082, 0.7999, 0.7183),
        (0.7992, 0.7032, 0.8569, 0.7978, 0.7992),
        (0.2728, 0.1437, 0.2131, 0.9586, 0.2728),
        (0.0634, 0.0328, 0.0780, 0.0526, 0.0634),
        (0.5179, 0.4239, 0.5574, 0.5586, 0.5183),
        (0.7346, 0.6665, 0.8720, 0.7208, 0.7524),
    ),
}
_PRINTED: Final = ("Unity",) * 6 + ("Physical",) * 6 + ("Clinical",) * 6 + ("Physical",) * 3


def _segmentation_rows() -> tuple[dict[str, float | str], ...]:
    rows: list[dict[str, float | str]] = []
    for data_set, values in _SEGMENTATION.items():
        for method, (dice, iou, recall, precision, f1) in zip(_METHODS, values, strict=True):
            rows.append(
                {
                    "data_set": data_set,
                    "printed_as": _PRINTED[len(rows)],
                    "method": method,
                    "dice": dice,
                    "iou": iou,
                    "recall": recall,
                    "precision": precision,
                    "f1": f1,
                }
            )
    return tuple(rows)


def _rows(names: tuple[str, ...], *values: tuple[float | str, ...]) -> tuple[dict[str, float | str], ...]:
    return tuple(dict(zip(names, row, strict=True)) for row in values)


TABLE_3: Final = Published(
    "Table 3: segmentation",
    _segmentation_rows(),
    (
        "The printed data-set labels are shifted: each block holds seven methods and ends with SAM2-UNet.",
        "Dice and F1 differ for some methods only, so pooled and per-image means are mixed.",
    ),
)
TABLE_4: Final = Published(
    "Table 4: depth, virtual set",
    _rows(
        ("method", "rmse", "absrel", "log10", "delta1", "delta2"),
        ("DAM V1", 0.242, 0.020, 0.009, 0.998, 0.999),
        ("DAM V2", 0.216, 0.015, 0.006, 0.996, 0.999),
        ("ZoeDepth", 0.213, 0.015, 0.006, 0.998, 0.999),
        ("DAM V2-mini", 0.185, 0.011, 0.005, 0.997, 0.999),
    ),
    ("The unit of RMSE is given as 10e-3 of an unstated unit.",),
)
TABLE_5: Final = Published(
    "Table 5: depth, clinical set",
    _rows(
        ("method", "rmse", "absrel", "log10", "mae", "delta1", "delta2"),
        ("DAM V1", 10.983, 0.428, 0.249, 8.348, 0.098, 0.390),
        ("DAM V2", 8.089, 0.383, 0.152, 5.757, 0.463, 0.732),
        ("ZoeDepth", 12.481, 0.491, 0.319, 9.784, 0.122, 0.268),
        ("DAM V2-mini", 8.801, 0.359, 0.162, 6.069, 0.415, 0.659),
    ),
)
_SIZE: Final = ("polyp", "label", "tm_pd", "tm_pd_error", "pm_pd", "pm_pd_error", "doctor", "doctor_error")
TABLE_6: Final = Published(
    "Table 6: size, virtual set (mm)",
    _rows(
        _SIZE,
        ("P1", 11.55, 13.46, 1.92, 19.06, 7.51, 9.26, 2.29),
        ("average", 9.57, 9.27, 4.34, 14.42, 7.52, 7.26, 4.88),
    ),
    (
        "The text quotes 0.43 mm for predicted masks with true depth, for which the table has no column.",
        "The text quotes 4.95 mm for true masks with predicted depth; the table says 4.34 mm.",
        "Size is linear in depth: a depth error of 1 to 2 % (Table 4) cannot give a size error of 45 %.",
    ),
)
TABLE_7: Final = Published(
    "Table 7: size, phantom (mm)",
    _rows(
        _SIZE[:6],
        ("P1", 6.20, 6.22, 0.02, 8.46, 2.26),
        ("P13", 4.94, 6.74, 1.08, 8.89, 3.85),
        ("average", 8.03, 8.38, 1.48, 9.48, 1.99),
    ),
    (
        "P13: 6.74 - 4.94 is 1.80, not 1.08, and 8.89 - 4.94 is 3.95, not 3.85.",
        "The text says that every error on the phantom lies above 1 mm; P1's is 0.02 mm.",
    ),
)
TABLE_8: Final = Published(
    "Table 8: size, clinical set (mm)",
    _rows(
        _SIZE,
        ("P1", 3.28, 2.17, 1.11, 1.73, 1.55, 4.20, 0.92),
        ("P53", 5.95, 5.99, 0.04, 4.22, 1.73, 8.67, 2.72),
        ("average", 3.28, 2.80, 1.19, 2.66, 0.95, 4.73, 1.84),
    ),
    (
        "0.95 mm on a mean size of 3.28 mm is 29 %: a constant predictor belongs beside it, and none is given.",
        "Predicted masks score better (0.95) than true masks (1.19) with the same depth.",
    ),
)
INCONSISTENCIES: Final = (
    "30 + 13 + 53 polyps are 96, not the 114 of Table 2; its overall range ends at 32.8 mm, its parts at 20.52 mm.",
    *(remark for table in (TABLE_3, TABLE_4, TABLE_6, TABLE_7, TABLE_8) for remark in table.remarks),
)
