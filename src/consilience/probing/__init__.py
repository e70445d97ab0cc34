"""Probe a model: ask what is planned, keep the answers, count them."""
