"""The commands: options, help and examples of each, and one call. No library is imported."""
