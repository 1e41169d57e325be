"""The reference engine: one state at a time, on the trees as they were traced; the others are compared with it."""
