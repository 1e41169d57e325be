"""The reference engine: evaluates the traced trees on one state at a time; tests compare the others with it."""
