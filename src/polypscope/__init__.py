"""Polypscope finds, outlines and measures polyps in colonoscopy video, and proves how well it does so.

Research software, not a medical device.
"""

__version__ = "0.1.0"

# Stands wherever a result is shown.
DISCLAIMER = "Research software, not a medical device."
