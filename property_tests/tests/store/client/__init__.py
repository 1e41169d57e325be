"""The tests of our client of a store, on our server and on torch's two."""
