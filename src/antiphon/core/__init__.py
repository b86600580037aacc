"""Every decision, as pure state machines: facts in, decisions out. Standard library only."""
