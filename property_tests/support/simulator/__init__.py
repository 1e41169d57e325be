"""The simulator's mutants, and its command as a program that a test starts."""
