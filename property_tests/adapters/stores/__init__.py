"""Known stores: each case of each operation, and the shortest sequence of each deviation."""
