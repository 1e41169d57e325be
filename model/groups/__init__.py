"""The groups of processes: how they are decided on, made over a store, and what is known to be wrong with that."""
