"""Tables, plots, overlays and self-contained HTML."""
