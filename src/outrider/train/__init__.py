"""Training of drafters with nothing but the target: it writes its own data and teaches itself."""
