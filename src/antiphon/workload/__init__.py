"""What users send, and when: the same for benchmarks and for the simulator."""

from .arrivals import poisson
from .asks import Ask, AskMix, ask

__all__ = ["Ask", "AskMix", "ask", "poisson"]
