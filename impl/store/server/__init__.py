"""The server of the store: a sans-I/O core, and what drives it."""
