"""What a store holds and who waits for it: shared by the server, `HashStore` and `FileStore`."""
