"""The virtual colon: geometry, polyps, scope, light, forceps, and exact truth for every pixel."""
