"""The checks of script/bench-bodies."""
