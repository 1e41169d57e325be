"""The conformance suite for any store, and the known deviations of torch's stores."""
