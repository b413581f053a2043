"""The way of a video: see, locate, follow, range, measure."""
