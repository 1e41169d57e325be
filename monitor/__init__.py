"""Real jobs under the model: their records and logs are read, followed step by step, explained and watched."""
