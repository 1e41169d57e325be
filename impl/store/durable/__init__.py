"""A store that outlives its server: a journal in a directory (`trystate store serve --data DIR`)."""
