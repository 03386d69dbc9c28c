"""Target architectures: configuration, weight names and the order of operators."""
