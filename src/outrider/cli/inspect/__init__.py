"""``outrider inspect``: what a model or a drafter is, and what running it costs."""
