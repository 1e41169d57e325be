"""A real rendezvous under the model: its record followed line by line, judged, and told."""
