"""Model weights to numbers: files, export to ONNX, engines, the cross-encoder and its cache."""
