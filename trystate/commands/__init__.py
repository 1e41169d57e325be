"""A module for each command of the command line, with its name."""
