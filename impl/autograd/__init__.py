"""Distributed autograd over RPC: contexts, FAST and SMART backward passes, an optimizer."""
