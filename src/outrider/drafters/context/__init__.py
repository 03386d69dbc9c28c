"""Drafters with a paged context of their own, whatever their network: states, faults, tails."""
