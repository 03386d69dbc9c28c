"""Finished drafters as checkpoints, in floats or in blocks of 4 or 8 bits."""
