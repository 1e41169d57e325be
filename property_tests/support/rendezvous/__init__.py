"""Tests of the rendezvous runtime: each piece, handlers in threads, and torchrun in real processes."""
