"""Configuration as frozen values: models, rotary embeddings, drafters, the engine."""
