"""Rooms and members without I/O: `nodes` makes requests, `worlds` has random runs, `edges` takes each edge
of the model.
"""
