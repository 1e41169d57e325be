"""The stores: a server and a client of TCPStore's protocol, and stores in memory and below a prefix."""
