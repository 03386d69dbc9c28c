"""The composition root: from what the user typed to a target, a tokenizer and a drafter."""
