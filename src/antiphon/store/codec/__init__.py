"""Codec: blocks of KV as few bytes, exactly or nearly so, by levels."""

from .blob import Blob, DecodeProblem, checksum_of, read_blob
from .block_codec import Block, decode, decode_blob, encode
from .block_shape import BlockShape
from .level import INT4, INT8, LOSSLESS, RAW, Level, entropy, parse_level
from .profile import KvProfile, ProfileLevel, Transform, find_flaw
from .profile_file import (
    ProfileName,
    encode_kv_profile,
    peek_kv_profile,
    read_kv_profile,
    write_kv_profile,
)
from .profile_fit import Moments, fit_levels, transform_of
from .rows import Part, rotation

__all__ = [
    "INT4",
    "INT8",
    "LOSSLESS",
    "RAW",
    "Blob",
    "Block",
    "BlockShape",
    "DecodeProblem",
    "KvProfile",
    "Level",
    "Moments",
    "Part",
    "ProfileLevel",
    "ProfileName",
    "Transform",
    "checksum_of",
    "decode",
    "decode_blob",
    "encode",
    "encode_kv_profile",
    "entropy",
    "find_flaw",
    "fit_levels",
    "parse_level",
    "peek_kv_profile",
    "read_blob",
    "read_kv_profile",
    "rotation",
    "transform_of",
    "write_kv_profile",
]
