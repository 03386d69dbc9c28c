"""One request's life: its token stream, its rounds, and how its state changes hands."""
