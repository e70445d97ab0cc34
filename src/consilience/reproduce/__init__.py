"""Every table and figure of both papers as a recipe; ours beside the paper's numbers."""
