"""What `--engine thread` costs and gives, as checks that can fail: script/bench-thread."""
