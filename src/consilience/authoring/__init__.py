"""Making suites, and asking people the same questions."""
