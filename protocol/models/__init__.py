"""Tokenizers and model folders in Hugging Face's format; only the modules below import transformers or torch."""
