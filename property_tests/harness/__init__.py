"""The conformance harness of this project and of its users. `trystate.testing` exports its public names."""
