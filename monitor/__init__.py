"""Real jobs under the model: what was recorded of them is read, followed step by step, explained and watched."""
