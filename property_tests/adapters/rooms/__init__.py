"""Rooms and members without I/O: `nodes` makes requests, `worlds` has random runs, `edges` takes the model's edges."""
