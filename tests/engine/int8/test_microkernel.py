"""The general tile is plain LLVM: it compiles for processors without any of x86's instructions."""

import llvmlite.binding as llvm
import pytest
from llvmlite import ir

from antiphon.engine.int8 import CpuLevel
from antiphon.engine.int8.microkernel import _SHAPES, _Tile


def _assembly(level: CpuLevel, triple: str, cpu: str, features: str) -> str:
    """One tile of four rows, optimised and compiled for another machine."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    module = ir.Module("tile")
    kind = ir.FunctionType(ir.VoidType(), [ir.IntType(64)] * 9)
    function = ir.Function(module, kind, "tile")
    builder = ir.IRBuilder(function.append_basic_block())
    _Tile(builder, _SHAPES[level], 4, False, *function.args).emit()
    builder.ret_void()
    machine = llvm.Target.from_triple(triple).create_target_machine(
        cpu=cpu, features=features, opt=3
    )
    return machine.emit_assembly(llvm.parse_assembly(str(module)))


def test_the_general_tile_uses_neon_on_arm():
    assembly = _assembly(CpuLevel.GENERIC, "aarch64-unknown-linux-gnu", "neoverse-n1", "")
    assert "smull" in assembly


@pytest.mark.parametrize(
    "level, features, instruction",
    [
        (CpuLevel.GENERIC, "+sse2", "pmaddwd"),
        (CpuLevel.AVX2, "+avx2", "vpmaddwd"),
        (CpuLevel.AVX2, "+avx2,+avxvnni", "vpdpwssd"),
        (CpuLevel.AVX512, "+avx512f,+avx512bw,+avx512vl", "vpmaddwd"),
        (CpuLevel.AVX512, "+avx512f,+avx512bw,+avx512vl,+avx512vnni", "vpdpwssd"),
    ],
)
def test_x86_gets_the_multiply_add_of_its_features(level, features, instruction):
    """Not a matter of taste: without it a tile is several times slower."""
    assembly = _assembly(level, "x86_64-unknown-linux-gnu", "x86-64", features)
    assert f"\t{instruction}\t" in assembly
