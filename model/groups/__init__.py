"""The groups of processes: how they are named and created over a store, and the known defects."""
