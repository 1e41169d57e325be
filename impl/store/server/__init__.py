"""The server of the store: a sans-I/O core, and its drivers."""
