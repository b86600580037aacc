"""Decisions of the store's tiers: which blocks are kept, for whom, and what goes."""
