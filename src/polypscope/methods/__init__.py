"""The hand-crafted and hybrid detectors of the MICCAI 2015 challenge: one file per method, no deep learning.

A method is a callable from an RGB frame to its detections. `registry.py` knows them by name, and `polypscope detect`
runs them. What methods share has a file of its own: `tissue.py` (what of a frame is mucosa), `peaks.py` (locations of
an energy map), `trained.py` (files of those that learn).
"""
