"""RPC under test: worlds of workers in this process and in others, and what they call on each other."""
