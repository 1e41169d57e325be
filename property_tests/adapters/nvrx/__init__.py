"""NVRx's barrier, its shipped file, as a subject of the model's steps."""
