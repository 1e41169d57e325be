"""The page: one file that shows models, runs and findings, and in which a browser walks the states of the models."""
