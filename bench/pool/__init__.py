"""What a worker pool costs and gives, as checks that can fail: script/bench-pool."""
