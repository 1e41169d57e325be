"""torch's process groups, unmodified, in real processes: the findings about their creation, brought about again."""
