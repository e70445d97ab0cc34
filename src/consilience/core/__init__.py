"""Values without input or output: texts, patterns, factors, expectations, errors."""
