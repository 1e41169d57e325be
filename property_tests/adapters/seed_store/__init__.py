"""The TCPStore of torch 1.9 as a program of its own, the model's edges on it, and the findings that only it has."""
