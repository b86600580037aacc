"""XXH3-64 over memory that is copied at the same time, written as LLVM vector IR.

A copied page must be verified, and a library could only read it once more after the copy: for pages
in cache that costs a third of the speed (docs/decisions/0005-kv-memory-is-a-memfd.md). Here each 64
bytes are loaded once into a register, stored from it and hashed from it: what is hashed is what was
stored, even if the source changes meanwhile.

The algorithm is XXH3_64bits of xxHash 0.8 with seed 0 and the default secret, for inputs longer
than 240 bytes (github.com/Cyan4973/xxHash, doc/xxhash_spec.md, "XXH3 Algorithm for Large Inputs").
Only sizes that are multiples of 64 are supported, so that no byte is read twice.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

STRIPE_BYTES = 64
LEAST_BYTES = 256
"""Up to 240 bytes XXH3 is another function."""

_SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
    "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
    "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
_PRIME32_1, _PRIME32_2, _PRIME32_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
_PRIME64_1, _PRIME64_2 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F
_PRIME64_3, _PRIME64_4 = 0x165667B19E3779F9, 0x85EBCA77C2B2AE63
_PRIME64_5 = 0x27D4EB2F165667C5
_START = (
    *(_PRIME32_3, _PRIME64_1, _PRIME64_2, _PRIME64_3),
    *(_PRIME64_4, _PRIME32_2, _PRIME64_5, _PRIME32_1),
)
_PRIME_MIX = 0x165667919E3779F9
_BLOCK_STRIPES = 16
_BLOCK_BYTES = _BLOCK_STRIPES * STRIPE_BYTES
_SCRAMBLE_AT, _LAST_AT, _MERGE_AT = 128, 121, 11
"""Where in the secret the keys of these steps begin."""

_AHEAD_BYTES = 4096
"""The processor's own prefetching ends at each border of 4 KiB."""

_I8, _I32, _I64, _I128 = (ir.IntType(bits) for bits in (8, 32, 64, 128))
_STRIPE = ir.VectorType(_I64, 8)


def hashing(*, copies: bool) -> Callable[..., int]:
    """Build the intrinsic `(source, size) -> hash` or, if it `copies`, `(source, target, size)`.

    Addresses and `size` in bytes are int64, the hash is uint64. Addresses are aligned to 64 bytes;
    `size` is a multiple of 64 and at least `LEAST_BYTES`; the areas do not overlap. The copy goes
    past the caches (a page's next reader comes a step later) and others see it after a fence only.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        source, target, size = args if copies else (args[0], None, args[1])
        return _Hash(builder, source, target, size).emit()

    def copying(typingctx: Any, source: Any, target: Any, size: Any) -> Any:
        return types.uint64(types.int64, types.int64, types.int64), codegen

    def reading(typingctx: Any, source: Any, size: Any) -> Any:
        return types.uint64(types.int64, types.int64), codegen

    made: Any = intrinsic(copying if copies else reading)
    return made


class _Hash:
    """Emits the code. Operands are int64 values in the IR; `target` None: nothing is stored."""

    def __init__(self, builder: Any, source: Any, target: Any, size: Any) -> None:
        self.builder = builder
        self.source = source
        self.target = target
        self.size = size
        self.blocks = builder.udiv(builder.sub(size, _int(1)), _int(_BLOCK_BYTES))

    def emit(self) -> Any:
        """Whole blocks, the stripes after them, the last stripe, then 512 bits become 64."""
        builder = self.builder
        sums = self._loop("blocks", _int(0), self.blocks, _stripe_of(_START), self._block)
        whole = builder.mul(self.blocks, _int(_BLOCK_STRIPES))
        stripes = builder.udiv(builder.sub(self.size, _int(1)), _int(STRIPE_BYTES))
        sums = self._loop("stripes", whole, stripes, sums, self._later_stripe)
        last = builder.sub(self.size, _int(STRIPE_BYTES))
        return self._merged(self._accumulated(sums, last, _key(_LAST_AT)))

    def _loop(self, name: str, first: Any, end: Any, sums: Any, body: Callable) -> Any:
        """`sums` after `body(sums, i)` for i from `first` to before `end`."""
        builder = self.builder
        before = builder.block
        head, inside, after = (
            builder.append_basic_block(f"xxh3.{name}.{part}") for part in ("head", "body", "after")
        )
        builder.branch(head)
        builder.position_at_end(head)
        index, carried = builder.phi(_I64), builder.phi(_STRIPE)
        index.add_incoming(first, before)
        carried.add_incoming(sums, before)
        builder.cbranch(builder.icmp_unsigned("<", index, end), inside, after)
        builder.position_at_end(inside)
        following = body(carried, index)
        index.add_incoming(builder.add(index, _int(1)), builder.block)
        carried.add_incoming(following, builder.block)
        builder.branch(head)
        builder.position_at_end(after)
        return carried

    def _block(self, sums: Any, block: Any) -> Any:
        """16 stripes, then the scramble that keeps high bits from being lost."""
        builder = self.builder
        start = builder.mul(block, _int(_BLOCK_BYTES))
        for stripe in range(_BLOCK_STRIPES):
            at = builder.add(start, _int(stripe * STRIPE_BYTES))
            sums = self._accumulated(sums, at, _key(8 * stripe))
        mixed = builder.xor(sums, builder.lshr(sums, _stripe_of([47] * 8)))
        mixed = builder.xor(mixed, _key(_SCRAMBLE_AT))
        return builder.mul(mixed, _stripe_of([_PRIME32_1] * 8))

    def _later_stripe(self, sums: Any, stripe: Any) -> Any:
        """A stripe of the block that is not full; its key depends on its number there."""
        builder = self.builder
        within = builder.urem(stripe, _int(_BLOCK_STRIPES))
        secret = cgutils.global_constant(
            builder, "xxh3.secret", ir.Constant(ir.ArrayType(_I8, len(_SECRET)), bytearray(_SECRET))
        )
        at = builder.gep(secret, [_int(0), builder.mul(within, _int(8))])
        key = builder.load(builder.bitcast(at, _STRIPE.as_pointer()), align=1)
        return self._accumulated(sums, builder.mul(stripe, _int(STRIPE_BYTES)), key)

    def _accumulated(self, sums: Any, at: Any, key: Any) -> Any:
        """`sums` with the 64 bytes at offset `at`, which are copied too."""
        builder = self.builder
        data = builder.load(self._pointer(self.source, at), align=STRIPE_BYTES)
        self._prefetch(builder.add(at, _int(_AHEAD_BYTES)))
        if self.target is not None:
            stored = builder.store(data, self._pointer(self.target, at), align=STRIPE_BYTES)
            one = builder.module.add_metadata([ir.Constant(_I32, 1)])
            stored.set_metadata("nontemporal", one)
        keyed = builder.xor(data, key)
        low = builder.and_(keyed, _stripe_of([0xFFFFFFFF] * 8))
        product = builder.mul(low, builder.lshr(keyed, _stripe_of([32] * 8)))
        neighbours = ir.Constant(ir.VectorType(_I32, 8), [1, 0, 3, 2, 5, 4, 7, 6])
        swapped = builder.shuffle_vector(data, ir.Constant(_STRIPE, ir.Undefined), neighbours)
        return builder.add(sums, builder.add(product, swapped))

    def _merged(self, sums: Any) -> Any:
        """Pairs of lanes multiplied to 128 bits and folded, added up, avalanched."""
        builder = self.builder
        total = builder.mul(self.size, _int(_PRIME64_1))
        for lane in range(0, 8, 2):
            low, high = (
                builder.zext(
                    builder.xor(
                        builder.extract_element(sums, ir.Constant(_I32, lane + side)),
                        _int(_word(_MERGE_AT + 8 * (lane + side))),
                    ),
                    _I128,
                )
                for side in (0, 1)
            )
            product = builder.mul(low, high)
            upper = builder.trunc(builder.lshr(product, ir.Constant(_I128, 64)), _I64)
            total = builder.add(total, builder.xor(builder.trunc(product, _I64), upper))
        total = builder.xor(total, builder.lshr(total, _int(37)))
        total = builder.mul(total, _int(_PRIME_MIX))
        return builder.xor(total, builder.lshr(total, _int(32)))

    def _prefetch(self, at: Any) -> None:
        """Ask for the source at offset `at`, which need not exist."""
        byte = _I8.as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [byte, _I32, _I32, _I32])
        prefetch = cgutils.get_or_insert_function(self.builder.module, kind, "llvm.prefetch.p0")
        address = self.builder.inttoptr(self.builder.add(self.source, at), byte)
        read, keep, data = (ir.Constant(_I32, value) for value in (0, 3, 1))
        self.builder.call(prefetch, [address, read, keep, data])

    def _pointer(self, base: Any, at: Any) -> Any:
        return self.builder.inttoptr(self.builder.add(base, at), _STRIPE.as_pointer())


def _word(at: int) -> int:
    """Eight bytes of the secret, little endian."""
    return int.from_bytes(_SECRET[at : at + 8], "little")


def _key(at: int) -> ir.Constant:
    """64 bytes of the secret."""
    return _stripe_of(_word(at + 8 * lane) for lane in range(8))


def _stripe_of(values: Any) -> ir.Constant:
    return ir.Constant(_STRIPE, list(values))


def _int(value: int) -> ir.Constant:
    return ir.Constant(_I64, value)
