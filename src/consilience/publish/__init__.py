"""Formats in which results are published: Every Eval Ever, model cards, the Hub, data sets.

Each format sees a ``PublicRun``, which holds all that may leave this machine, and returns files.
"""
