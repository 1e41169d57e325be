"""Rooms: a rendezvous whose state lives in the process of the store's server, and the node's half of it.

A node sends a small request (messages.py). The server's `Room` (room.py) applies it to a `Table` (table.py) in one
call, answers, and sends notices to the other members. A node's `Member` (member.py) makes the requests and reads the
answers. None of the four reads a clock, a socket or a file.
"""
