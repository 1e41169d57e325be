"""Our client of a store on real servers: fixtures of its tests."""
