"""The stores of PyTorch: their machines, systems, and what is known to be wrong with them."""
