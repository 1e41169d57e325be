"""RPC under test: worlds of workers in this process and in others, and the functions that they call."""
