"""The hand-crafted and hybrid detectors of the MICCAI 2015 challenge: no torch.

A method is a callable from an RGB frame to its detections. `registry.py` knows them by name, and `polypscope detect`
runs them. A method has a file, and its parts have theirs; so has what methods share: `tissue.py` (what of a frame is
mucosa), `peaks.py` (locations of an energy map), `trained.py` (files of those that learn).
"""
