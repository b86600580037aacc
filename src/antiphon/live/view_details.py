"""What a worker's counts have besides that nothing is decided by: heartbeats alone bring it."""

from dataclasses import replace

from antiphon.types import WorkerView


def without_details(view: WorkerView) -> WorkerView:
    """What decisions are about, and what is recorded with them."""
    if view.expert_tokens is None and view.links is None:
        return view
    return replace(view, expert_tokens=None, links=None)


def with_details(view: WorkerView, before: WorkerView) -> WorkerView:
    """The new counts, with the details of `before` where they have none."""
    experts = before.expert_tokens if view.expert_tokens is None else view.expert_tokens
    links = before.links if view.links is None else view.links
    if experts is view.expert_tokens and links is view.links:
        return view
    return replace(view, expert_tokens=experts, links=links)
