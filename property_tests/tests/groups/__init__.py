"""The groups of processes: their model, and what torch does."""
