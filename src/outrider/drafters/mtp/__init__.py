"""Multi-token prediction: one decoder layer, chained on its own hidden state."""
