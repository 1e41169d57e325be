"""The TCPStore of torch 1.9 and its groups as programs of their own, models' edges on them, and their findings."""
