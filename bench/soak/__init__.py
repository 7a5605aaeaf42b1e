"""script/soak."""
