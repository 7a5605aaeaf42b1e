"""What TLS costs, beside nginx: script/bench-tls."""
