"""How work is run: ONNX sessions, model cards, shipped weights, jobs, progress and run logs."""
