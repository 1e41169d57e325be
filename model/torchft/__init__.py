"""torchft's lighthouse and the manager of a replica: their quorums and votes, and the known defects."""
