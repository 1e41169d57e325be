"""The conformance harness, for the suites of this project and for those of users: `trystate.testing` has its names."""
