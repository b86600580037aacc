"""Faults on a live cluster under load, and proof that it loses nothing."""
