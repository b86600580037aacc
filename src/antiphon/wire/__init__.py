"""How `types` look outside the process: encoded by msgspec, without mirror classes."""

from .decision_log import DecisionLogWriter, read_decision_log

__all__ = ["DecisionLogWriter", "read_decision_log"]
