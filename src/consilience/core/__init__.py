"""The values that all packages share, without input or output."""
