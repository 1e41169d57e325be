"""Proofs of safety for any size, by induction, with a solver for formulas with quantifiers and integers."""
