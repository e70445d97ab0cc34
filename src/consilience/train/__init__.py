"""Make a model better: more consistent, without making it worse."""
