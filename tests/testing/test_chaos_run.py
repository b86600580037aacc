"""The runner by hand: it says what it ran, and makes a failure small."""

import pytest

from antiphon.core.faults import FaultPlan
from antiphon.testing.chaos import Family, setup_of
from antiphon.testing.chaos_run import breaks_law, main, shrunk
from antiphon.testing.faulty_cluster import book_that_ignores_attempts
from antiphon.testing.handover.__main__ import main as explore_main


def test_a_seed_is_the_same_run_everywhere() -> None:
    for family in Family:
        assert repr(setup_of(5, family)) == repr(setup_of(5, family)) != repr(setup_of(6, family))


def test_runs_by_hand_end_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--first", "3", "--count", "2", "--family", "honest"]) == 0
    said = capsys.readouterr().out
    assert "outcome finished" in said
    assert "0 of 2" in said
    bounds = ["--prefill", "1", "--decode", "1", "--requests", "1", "--crashes", "1"]
    assert explore_main(bounds) == 0
    assert "Explored(states=" in capsys.readouterr().out


def test_a_failure_is_made_small() -> None:
    """Of a run with many calls and faults only those are left without which it would not fail."""
    setup, family = setup_of(95, Family.IMPATIENT), Family.IMPATIENT

    def fails(one) -> bool:
        return breaks_law(one, family, make_book=book_that_ignores_attempts) is not None

    assert breaks_law(setup, family) is None
    assert fails(setup)
    small = shrunk(setup, fails)
    assert fails(small)
    assert len(small.stimuli) + len(small.faults.faults) < len(setup.stimuli)
    without_faults = setup_of(95, Family.IMPATIENT, faults=FaultPlan(95))
    assert fails(without_faults) or small.faults.faults
