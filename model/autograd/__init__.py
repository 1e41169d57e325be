"""Distributed autograd: the backward pass over the workers' graphs."""
