"""KV bytes outside the engine: where they lie, how they move, how a reader knows they are right."""
