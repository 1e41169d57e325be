"""Rooms and members without I/O: `nodes` makes requests, `worlds` has random runs of many, `orders` all runs of two.

`edges` takes each edge of the model.
"""
