"""The contents of a store and its waiters: shared by the server and `HashStore`."""
