"""Models behind a URL: requests, limits, strategies. Nothing here imports torch or transformers."""
