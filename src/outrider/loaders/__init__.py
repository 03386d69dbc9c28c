"""Checkpoints on disk as configurations, raw weights and tokenizers."""
