"""What several benchmarks share, and the processes that they start."""
