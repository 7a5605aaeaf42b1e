"""script/bench-workers."""
