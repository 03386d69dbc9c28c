"""Drafters of whole blocks: the backbone that they share, and DFlash, DFlash2 and DSpark on it."""
