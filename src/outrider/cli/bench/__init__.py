"""``outrider bench``: what a drafter gains, and why, by kind of prompt."""
