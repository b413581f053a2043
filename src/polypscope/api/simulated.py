"""The simulator as a source of frames for `live` and `demo`; its truth can be listened to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from polypscope.records import Camera, Frame, GroundTruth

__all__ = ["SimulatedSource"]


class SimulatedSource:
    """One simulated sequence that is rendered while it is read.

    seed, index: which sequence. withdrawal: run an insertion backwards. on_truth: called with the truth of each frame
    before the frame is given.
    settings: fields of `polypscope.simulator.Settings`.
    """

    def __init__(
        self,
        seed: int,
        index: int = 0,
        *,
        withdrawal: bool = False,
        on_truth: Callable[[GroundTruth], None] | None = None,
        **settings: Any,
    ) -> None:
        from polypscope.io.sources import SourceInfo
        from polypscope.simulator import sequence

        self._sequence = sequence(seed, index, **{"style": "clinical", "polyps": "sampled", **settings})
        if withdrawal and self._sequence.motion == "insertion":
            # Both look towards the caecum; they differ in the direction of travel alone.
            self._sequence.poses, self._sequence.motion = self._sequence.poses[::-1], "withdrawal"
        self.camera: Camera = self._sequence.camera
        self.info = SourceInfo(
            f"simulated {self._sequence.motion} {seed}",
            "simulator",
            self.camera.width,
            self.camera.height,
            25.0,
            len(self._sequence),
        )
        self.notes: tuple[str, ...] = ()
        self.on_truth = on_truth

    def __iter__(self) -> Iterator[Frame]:
        for item in self._sequence:
            if self.on_truth is not None:
                self.on_truth(item.truth)
            yield item.frame

    def __enter__(self) -> SimulatedSource:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to let go of."""
