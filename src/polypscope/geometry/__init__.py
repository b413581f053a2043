"""Cameras, masks and contours, depth to points, caliper, forceps, trajectories: numpy and scipy only."""
