"""Tokens from tensors: torch lives here."""
