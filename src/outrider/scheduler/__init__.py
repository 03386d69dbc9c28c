"""Who is served in the next round, and with how many rows. Knows no tensors."""
