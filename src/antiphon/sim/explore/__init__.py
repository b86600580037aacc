"""Drawn clusters under drawn faults, the laws that must hold, and the smallest run to break one."""
