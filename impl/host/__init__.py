"""What the parts of the runtime share about one host: forks, listening sockets, names, secrets, deadlines."""
