"""The planner steers a live server: it sees its workers, and starts, ends and flips them."""

from .crew import Crew, CrewNow
from .hand import Hand
from .steering import Steering
from .steering_of import steering_of

__all__ = ["Crew", "CrewNow", "Hand", "Steering", "steering_of"]
