"""Our agent's decisions take the steps of the model `Agents`."""
