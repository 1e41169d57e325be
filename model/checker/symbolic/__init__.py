"""The symbolic engine: sets of states as binary decision diagrams; a second opinion by an independent algorithm."""
