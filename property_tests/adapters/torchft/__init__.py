"""torchft's lighthouse and manager, its shipped extension, as subjects of the model's steps."""
