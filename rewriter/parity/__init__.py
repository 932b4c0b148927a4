"""Whether a rewritten model is still the same function.

The oracle is always ONNX Runtime on the *original* nodes or file: single precision, graph
optimizations off, MatMulNBits without int8 activations (``accuracy_level`` removed on both
sides), because at default settings ORT itself rounds activations and two right answers differ.

A model of float16 or bfloat16 is widened to float32 first (``widen``). Its original in float32 is
the reference: the result in float32 has to agree with it as closely as any float32 model, and
each side as it is may be as far from it as its type is coarse, or as the original is, if that is
further (``model``, ``sites``). A device is compared with exact arithmetic on the same file; where
the fixed bound does not hold, with what half precision costs on that graph (``device``, ``half``).
"""
