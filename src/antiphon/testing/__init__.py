"""For tests: Hypothesis strategies, the laws as checks, faulty stand-ins for negative controls."""
