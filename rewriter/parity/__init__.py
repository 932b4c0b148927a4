"""Whether a rewritten model is still the same function.

The oracle is always ONNX Runtime on the *original* nodes or file: single precision, graph
optimizations off, MatMulNBits without int8 activations (``accuracy_level`` removed on both
sides), because at default settings ORT itself rounds activations and two right answers differ.
"""
