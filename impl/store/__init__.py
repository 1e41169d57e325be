"""The stores: a server and a client of TCPStore's protocol, and stores in memory, in a file and below a prefix."""
