"""Our agent's decisions beside the model `Agents`."""
