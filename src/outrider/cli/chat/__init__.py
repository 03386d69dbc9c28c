"""``outrider chat``: a conversation in the terminal, or over a pipe."""
