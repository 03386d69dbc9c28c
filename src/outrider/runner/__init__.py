"""Runs the target over one round's rows."""
