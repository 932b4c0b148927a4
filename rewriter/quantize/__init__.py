"""Float weights made integers of 4 or 8 bits, on request, with the error of each stated.

Import from the modules: ``spec`` (what is asked, and what became of it), ``weights``
(``quantize_weights``, in place), ``source`` (``quantized_source``, for the pipeline), ``measure``.
The package loads nothing by itself, because the command line reads ``spec`` for its help.
"""
