"""torch's elastic agent, unmodified: its loop compared with the model, and the findings about it, reproduced."""
