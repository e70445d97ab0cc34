"""Consilience inside other tools."""
