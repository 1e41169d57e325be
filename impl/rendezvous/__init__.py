"""The rendezvous: how the members of a group find each other, by a URL or as the nodes of an elastic job."""
