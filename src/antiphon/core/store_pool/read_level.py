"""At which level a store reads another one's blocks: as it is set, if that one can encode so.

    set here   set there               read at
    raw        any                     raw: this one asks for nothing else
    any        raw                     raw: that one encodes nothing
    entropy-N  …, another profile      raw: what it encodes could not be decoded here
    adaptive   …, another profile      adaptive, without entropy levels
    any        any other               as it is set here

Each store says in its welcome how it is set, so that both sides know, and say why.
"""

from dataclasses import dataclass

from antiphon.core.kv.lineage import ADAPTIVE

RAW = "raw"
_ENTROPY = "entropy"


@dataclass(frozen=True, slots=True)
class LevelSetting:
    """`store_pool.level` of a store, and the id of its profile; empty: it has none."""

    level: str = RAW
    profile: bytes = b""

    @property
    def uses_profile(self) -> bool:
        """Whether it may read at an entropy level."""
        return self.level == ADAPTIVE or self.level.startswith(_ENTROPY)


@dataclass(frozen=True, slots=True)
class ReadLevel:
    """At which level a peer is read. `entropy`: entropy levels among them. `problem`: how the two
    sides differ, and what to do; empty: they are set alike."""

    level: str = RAW
    entropy: bool = False
    problem: str = ""

    def allows(self, level: str) -> bool:
        """Whether a block may be asked of the peer at that level."""
        if level == RAW:
            return True
        if level.startswith(_ENTROPY) and not self.entropy:
            return False
        return self.level in (level, ADAPTIVE)


def read_level(here: LevelSetting, there: LevelSetting) -> ReadLevel:
    """What the store that is set like `here` reads at from one that is set like `there`."""
    same_profile = bool(here.profile) and here.profile == there.profile
    problem = ""
    if here.level != there.level:
        problem = (
            f"store_pool.level is {here.level} here and {there.level} there: set the same on both"
        )
    elif here.uses_profile and here.profile != there.profile:
        problem = "store_pool.profile is another one there: set the same on both"
    readable = there.level != RAW and (same_profile or not here.level.startswith(_ENTROPY))
    level = here.level if readable else RAW
    return ReadLevel(level, entropy=same_profile and level != RAW, problem=problem)
