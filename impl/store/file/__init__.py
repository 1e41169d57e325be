"""`FileStore` and its append-only log."""
