"""What is trained, and the target that it learns from, as torch modules and tensors."""
