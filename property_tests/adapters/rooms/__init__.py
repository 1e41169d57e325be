"""Rooms and members without I/O: `nodes` makes their requests, `worlds` has random runs of many, `orders` all of two.
`edges` replays the model's edges.

python -m trystate.property_tests.adapters.rooms.worlds 0 500
"""
