"""Services of the host for the whole runtime: forks, listening sockets, names, secrets, deadlines."""
