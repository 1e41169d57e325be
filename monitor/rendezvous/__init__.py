"""A real rendezvous on the model: its record is followed line by line, judged and reported."""
