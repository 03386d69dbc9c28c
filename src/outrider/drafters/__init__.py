"""Drafters: they propose tokens for the target to judge, and can never change an answer."""
