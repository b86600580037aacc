"""Compiled functions of this folder, kept on disk."""

from pathlib import Path

from antiphon.store.compiled import compiler

kernel = compiler(Path(__file__).parent.glob("*.py"))
