"""The published benchmarks by name."""
