"""Stores under test: attacked, recorded, fuzzed, and used by process groups; and the judge of their histories."""
