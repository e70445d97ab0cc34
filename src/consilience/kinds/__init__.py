"""The kinds of suites, and the tables of answers that each can read."""
