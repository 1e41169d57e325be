"""RPC between named workers: calls by name, tensors beside the pickle, references to values that stay in place."""
