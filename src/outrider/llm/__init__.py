"""The offline Python interface."""
