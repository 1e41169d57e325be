"""torch's TCPStore under test: real servers in processes of their own, and peers that speak its protocol by hand."""
