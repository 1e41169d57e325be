"""A record of what the clients of a store do: its format, its writer and its reader."""
