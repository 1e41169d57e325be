"""Other checkers, run on exported systems."""
