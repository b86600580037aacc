"""A case survives the way to a file and back; as a test it fails while the law is broken."""

from dataclasses import replace

import pytest

from antiphon.core.faults import (
    At,
    Boundary,
    CopyFault,
    Corrupt,
    FaultPlan,
    FillDisk,
    StoreFault,
    When,
)
from antiphon.errors import BugError, UsageError
from antiphon.sim.explore import cluster_run
from antiphon.sim.explore.case_json import Case, case_text, read_case
from antiphon.sim.explore.case_python import case_test
from antiphon.sim.explore.cluster_run import Parts, broken_by
from antiphon.sim.explore.drawn_cluster import Family, setup_of
from antiphon.sim.explore.shrink import shrink
from antiphon.testing.faulty_cluster import book_that_loses_resume_points


def case_of(seed: int, family: Family) -> Case:
    return Case(family, setup_of(seed, family), "I4", 'I4: "held" \\ by r0')


@pytest.mark.parametrize("family", Family)
def test_a_case_is_read_back_as_it_was(family: Family) -> None:
    for seed in range(12):
        case = case_of(seed, family)
        assert repr(read_case(case_text(case))) == repr(case)


@pytest.mark.parametrize("family", Family)
def test_a_case_as_a_test_builds_the_same_set_up(
    family: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []
    for seed in range(12):
        case = case_of(seed, family)
        written = case_test(case, "From somewhere.")
        assert max(map(len, written.splitlines())) <= 100 or "prompt=" in written
        with monkeypatch.context() as patch:
            patch.setattr(cluster_run, "run_cluster", lambda *run: ran.append(repr(run)))
            names: dict[str, object] = {}
            exec(written, names)
            names["test_i4_holds"]()  # pyright: ignore[reportCallIssue]
        assert ran[-1] == repr((case.setup, family))


def test_a_case_as_a_test_fails_while_the_law_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    faulty = Parts(make_book=book_that_loses_resume_points)
    small = shrink(setup_of(0, Family.HONEST), Family.HONEST, faulty)
    case = Case(small.family, small.setup, small.broken.law, small.broken.problem)
    names: dict[str, object] = {}
    exec(case_test(case, "Seed 0."), names)
    test = names["test_i14_holds"]
    test()  # pyright: ignore[reportCallIssue]
    true_run = cluster_run.run_cluster
    monkeypatch.setitem(names, "run_cluster", lambda setup, family: true_run(setup, family, faulty))
    with pytest.raises(BugError, match="I14"):
        test()  # pyright: ignore[reportCallIssue]


def test_new_faults_are_read_back() -> None:
    faults = (
        CopyFault(When(Boundary.FETCH, 3), Corrupt()),
        StoreFault(At(0.25), FillDisk(1.5)),
    )
    setup = replace(setup_of(1, Family.STORE), faults=FaultPlan(1, faults))
    case = Case(Family.STORE, setup, "I5", "I5: …")
    assert read_case(case_text(case)).setup.faults.faults == faults
    assert broken_by(setup, Family.STORE) is None


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda text: text[:-20], "it is no JSON"),
        (lambda _: "[]", "it is no case"),
        (lambda _: '{"is": "Case"}', "Case: "),
        (lambda text: text.replace('"ClusterSetup"', '"Popen"'), '"Popen" is no part'),
        (lambda text: text.replace('"pages"', '"page"'), "WorkerSpec: .*'page'"),
        (lambda text: text.replace('"pages": ', '"pages": "x", "_": '), "WorkerSpec.pages: 'x'"),
        (lambda text: text.replace('"honest"', '"dishonest"'), "dishonest"),
        (lambda text: text.replace('"is": "Call"', '"was": "Call"'), 'an object without "is"'),
    ],
)
def test_what_is_wrong_with_a_file_is_named(change, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        read_case(change(case_text(case_of(0, Family.HONEST))))
