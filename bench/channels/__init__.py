"""What topics cost beside what a server does otherwise; the figures beside peers are rows of script/bench."""
