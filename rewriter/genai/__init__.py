"""``genai_config.json``: what onnxruntime-genai has to know to run a folder.

A graph whose caches grow is a plain decoder. Graphs of fixed sizes, and parts of graphs, are a
``decoder-pipeline``. Every key was looked up in the runtime's own reader (``src/config.cpp`` at
00a26d59, which refuses keys it does not know), and what it does with it in version 0.18.0.
"""

from rewriter.genai.adapt import adapt
from rewriter.genai.check import check
from rewriter.genai.files import genai_files
from rewriter.genai.fitness import unfit
from rewriter.genai.graphs import GraphFile, graph_files
from rewriter.genai.stated import NAME

__all__ = ["NAME", "GraphFile", "adapt", "check", "genai_files", "graph_files", "unfit"]
