"""What tests, demo and benchmarks share with a user's own tests."""
