"""The elastic agent: it runs the workers of one node, and ends as the whole job does."""
