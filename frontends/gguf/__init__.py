"""GGUF: the files of llama.cpp."""
