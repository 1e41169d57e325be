"""RPC between named workers: calls by name, tensors outside of the pickle, references to values that stay in place."""
