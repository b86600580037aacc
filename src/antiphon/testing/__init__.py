"""For tests: strategies, the laws as checks, stand-ins."""
