"""The rendezvous of torch 1.10 as a separate program, and its comparison with the edition SEED."""
