"""ONNX files of any exporter."""
