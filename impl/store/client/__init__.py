"""The client of the store's protocol."""
