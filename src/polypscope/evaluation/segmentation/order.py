"""The order of frames and clips by their names, as the SUN-SEG toolbox sorts them, and what it drops.

Names that are whole numbers are sorted as numbers. SUN-SEG names (`case_M_20181001…_001-1_a10_ayy_image0001`) are
sorted by case, sub-case, the integer before the hyphen, `_aN` and `_imageN`, so that image 10000 follows 9999. The
toolbox stops at any other name; here they are sorted with their digits read as numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_SUN_CLIP = re.compile(r"case(\d+)(?:_(\d+))?$")
_SUN_FRAME = re.compile(r"(?:.*_)?(\d+)-.*?_a(\d+)_.*_image(\d+)$")
_SUN_FRAME_PLAIN = re.compile(r".*_a(\d+)_.*_image(\d+)$")


def sort_frames(names: Iterable[str]) -> list[str]:
    """Frame names of one clip, without file endings, in the protocol's order.

    >>> sort_frames(["10", "9", "101"])
    ['9', '10', '101']
    >>> sort_frames(["x_001-1_a2_ayy_image0010", "x_001-1_a10_ayy_image0001", "x_001-1_a2_ayy_image0009"])
    ['x_001-1_a2_ayy_image0009', 'x_001-1_a2_ayy_image0010', 'x_001-1_a10_ayy_image0001']
    """
    names = list(names)
    if all(name.isdecimal() for name in names):
        return sorted(names, key=lambda name: (int(name), name))
    keys = [_sun_key(name) for name in names]
    if all(key is not None for key in keys):
        return sorted(names, key=lambda name: (_sun_key(name) or (), name))
    return sorted(names, key=natural)


def _sun_key(name: str) -> tuple[int, ...] | None:
    if match := _SUN_FRAME.match(name):
        return tuple(int(part) for part in match.groups())
    if match := _SUN_FRAME_PLAIN.match(name):
        return (0, *(int(part) for part in match.groups()))
    return None


def natural(name: str) -> list[tuple[int, int, str]]:
    """A sort key that reads runs of digits as numbers.

    >>> sorted(["case10_3", "case2", "case1_1"], key=natural)
    ['case1_1', 'case2', 'case10_3']
    """
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d+)", name) if part]


def case_of(clip: str) -> str:
    """The case that a clip is cut from: SUN-SEG's `case10_3` is part of `case10`; other names are their own case.

    >>> case_of("case10_3"), case_of("case2"), case_of("7")
    ('case10', 'case2', '7')
    """
    match = _SUN_CLIP.match(clip)
    return f"case{match.group(1)}" if match else clip
