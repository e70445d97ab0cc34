"""Many models on many suites, on one machine or many."""
