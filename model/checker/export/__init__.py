"""Systems written down for other checkers."""
