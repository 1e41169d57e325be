"""Stores under test: attacked, recorded, fuzzed, and in process groups; the judge of their histories."""
