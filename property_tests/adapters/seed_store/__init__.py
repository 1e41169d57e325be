"""The TCPStore of torch 1.9 and its groups as separate programs, the models' edges on them, and their findings."""
