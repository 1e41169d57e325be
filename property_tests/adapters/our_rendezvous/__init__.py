"""Our rendezvous' operators and changes, in every context that the decision tables tell apart."""
