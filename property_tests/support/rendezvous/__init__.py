"""Nodes, wrong tables and ablations for the tests of the rendezvous."""
