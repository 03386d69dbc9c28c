"""The composition root: from what the user typed to a target, a drafter and an engine."""
