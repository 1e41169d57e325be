"""What a server keeps across its own restart: a journal in a directory (`trystate store serve --data DIR`)."""
