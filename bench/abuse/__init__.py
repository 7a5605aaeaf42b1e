"""What happens to good clients while bad ones do their worst, as checks that can fail: script/abuse."""
