"""The rendezvous of torch 1.10 as a program of its own, and its comparison with the edition SEED."""
