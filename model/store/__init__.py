"""The stores of PyTorch: their machines, systems, and known defects."""
