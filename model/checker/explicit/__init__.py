"""The explicit engine: every state, packed into words, a whole frontier at a time. The default at every size."""
