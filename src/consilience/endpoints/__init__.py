"""Models behind a URL: requests, retries, limits, and what is kept of replies.

``client.py`` is what models use: it sends a request until there is a reply, says what a reply
means, and decides how many requests are in flight. ``usage.py`` counts, limits and plans requests,
tokens and cost, and ``journal.py`` keeps replies, so that an interrupted run pays for nothing
twice. ``address.py`` checks the URL and reads the key. Nothing here imports torch or transformers.
"""
