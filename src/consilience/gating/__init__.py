"""Rules on the numbers of a run, for CI: what they are, what they need, whether they hold."""
