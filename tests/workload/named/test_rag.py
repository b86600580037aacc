from collections import Counter
from itertools import islice

import pytest

from antiphon.errors import UsageError
from antiphon.workload import Rag, Session, UniformLength, parse_workload


def some(rag: Rag, count: int, seed: int = 1) -> list[Session]:
    return list(islice(rag.sessions(seed), count))


def documents(session: Session) -> list[str]:
    return session.turns[0].ask.text.split("\n\n")[:-1]


def test_documents_are_shared_word_for_word() -> None:
    rag = Rag(documents=10, retrieved=3)
    pool = [rag.document_text(rank, 1) for rank in range(10)]
    assert len(set(pool)) == 10
    seen = [document for session in some(rag, 100) for document in documents(session)]
    assert set(seen) <= set(pool)
    assert len(set(seen)) == 10


def test_a_question_has_different_documents_in_any_order() -> None:
    orders = {tuple(documents(session)) for session in some(Rag(documents=3, retrieved=3), 200)}
    assert all(len(set(order)) == 3 for order in orders)
    assert len(orders) == 6


def test_popularity_falls_as_zipf_says() -> None:
    rag = Rag(documents=20, retrieved=1, zipf=1.0, document=UniformLength(5, 5))
    seen = Counter(documents(session)[0] for session in some(rag, 5000))
    counts = [seen[rag.document_text(rank, 1)] for rank in range(20)]
    assert counts[0] / counts[1] == pytest.approx(2, rel=0.15)
    assert counts[0] / counts[9] == pytest.approx(10, rel=0.3)


def test_questions_differ_and_the_system_prompt_does_not() -> None:
    sessions = some(Rag(), 100)
    assert len({session.turns[0].ask.text.split("\n\n")[-1] for session in sessions}) == 100
    assert len({session.turns[0].history for session in sessions}) == 1


def test_documents_are_cut_to_the_context_alike_for_all() -> None:
    rag = Rag(documents=5, retrieved=2, document=UniformLength(2000, 3000), max_context=8192)
    small = Rag(documents=5, retrieved=2, document=UniformLength(100, 3000), max_context=1024)
    assert len(rag.document_text(0, 1).split()) >= 2000
    seen = {document for session in some(small, 50) for document in documents(session)}
    assert seen == {small.document_text(rank, 1) for rank in range(5)}


def test_more_documents_than_there_are_is_refused() -> None:
    with pytest.raises(UsageError, match=r"rag: retrieved must be at most documents \(2\), not 3"):
        parse_workload("rag:documents=2")
