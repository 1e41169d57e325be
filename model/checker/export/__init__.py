"""Exports of systems for other checkers."""
