"""Models behind a URL: requests, retries, limits, and what is kept of replies.

``client.py`` checks the URL, sends a request until there is a reply, and says what a reply means;
``usage.py`` counts, limits and plans requests, tokens and cost, and keeps replies, so that an
interrupted run pays for nothing twice. Nothing here imports torch or transformers.
"""
