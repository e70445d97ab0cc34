"""Tables become pages. This room only shows: it reads the answers and metrics tables."""
