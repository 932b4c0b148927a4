"""Safetensors: checkpoints as Hugging Face transformers saves them, a folder each."""
