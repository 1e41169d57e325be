"""torch's TCPStore under test: real servers in separate processes."""
