"""torch's elastic agent, unmodified: the findings about it, each brought about again."""
