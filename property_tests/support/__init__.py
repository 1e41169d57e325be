"""Shared by several tests: mutants, sample systems, real processes, pinned counts. Not part of the wheel."""
