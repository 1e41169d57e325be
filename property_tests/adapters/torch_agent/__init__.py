"""torch's elastic agent, unmodified: its loop beside the model, and the findings about it, brought about again."""
