"""The explicit engine: visits every state, packed into words, a whole frontier at a time. It is the default."""
