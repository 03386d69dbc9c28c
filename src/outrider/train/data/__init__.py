"""Training data: conversations that the target writes."""
