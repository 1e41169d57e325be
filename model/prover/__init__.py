"""Proofs of safety for any size, by induction, with a solver of formulas with quantifiers and integers."""
