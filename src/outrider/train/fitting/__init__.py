"""Fitting a network to conversations: batches, losses, optimisers, evaluation."""
