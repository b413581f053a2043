"""The virtual colon: a simulator with exact truth, fast enough to be a data engine."""

from polypscope.simulator.polyps import MODELS, PARIS_CLASSES, PolypModel
from polypscope.simulator.sequence import Settings, SimulatedFrame, SimulatedSequence, sequence

__all__ = ["MODELS", "PARIS_CLASSES", "PolypModel", "Settings", "SimulatedFrame", "SimulatedSequence", "sequence"]
