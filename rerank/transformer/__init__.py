"""Transformers: names to checked weights, weights to ONNX, and token ids to numbers."""
