"""What a run gives: its analyses, comparisons, reports, and whether it is reproduced."""
