"""Stand-ins and strategies for tests."""
