"""A fault plan as text that people read and programs read back: JSON, one fault a line."""

import json
from dataclasses import asdict
from typing import Any

from .fault import (
    At,
    Boundary,
    CopyFault,
    Corrupt,
    Crash,
    Cut,
    Delay,
    Drop,
    Duplicate,
    Fault,
    FaultPlan,
    FillDisk,
    LinkFault,
    LoseBlocks,
    MessageFault,
    Node,
    PartialWrite,
    Partition,
    Party,
    ProcessFault,
    Reorder,
    Slow,
    StaleGeneration,
    Stall,
    StoreFault,
    When,
)

_TYPES = {
    kind.__name__: kind
    for kind in (
        *(At, When, Crash, Stall, Slow, Partition, Cut, Delay, Drop, Duplicate, Reorder),
        *(Corrupt, PartialWrite, StaleGeneration, FillDisk, LoseBlocks),
        *(ProcessFault, LinkFault, MessageFault, CopyFault, StoreFault),
    )
}


def plan_text(plan: FaultPlan) -> str:
    """The seed's line, then one line a fault. `parse_plan` reads it back."""
    lines = [json.dumps({"seed": plan.seed, "spared": plan.spared})]
    lines += (json.dumps(_fault_fields(fault)) for fault in plan.faults)
    return "\n".join(lines) + "\n"


def parse_plan(text: str) -> FaultPlan:
    """The plan that `plan_text` wrote. Raises `ValueError` naming the line that is no fault."""
    faults: list[Fault] = []
    seed: int | None = None
    spared: tuple[Node, ...] = ()
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            fields = json.loads(line)
            if number == 1:
                seed, spared = int(fields["seed"]), tuple(map(str, fields["spared"]))
            else:
                faults.append(_parse_fault(fields))
        except (ValueError, KeyError, TypeError, AttributeError) as problem:
            raise ValueError(f"line {number} of the fault plan is not a fault: {line}") from problem
    if seed is None:
        raise ValueError("the fault plan is empty: its first line names the seed")
    return FaultPlan(seed, tuple(faults), spared)


def _fault_fields(fault: Fault) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "fault": type(fault).__name__,
        "trigger": _tagged(fault.trigger),
        "action": _tagged(fault.action),
    }
    match fault:
        case ProcessFault(whom=Party() as party):
            fields["party"] = party.value
        case ProcessFault(whom=node):
            fields["node"] = node
        case LinkFault(link=link):
            fields["link"] = link
        case MessageFault() | CopyFault() | StoreFault():
            pass
    return fields


def _tagged(value: Any) -> dict[str, Any]:
    return {"is": type(value).__name__, **asdict(value)}


def _untagged(fields: dict[str, Any]) -> Any:
    values = dict(fields)
    kind = _TYPES[values.pop("is")]
    if kind is When:
        values["boundary"] = Boundary(values["boundary"])
    return kind(**values)


def _parse_fault(fields: dict[str, Any]) -> Fault:
    trigger, action = _untagged(fields["trigger"]), _untagged(fields["action"])
    match fields["fault"]:
        case "ProcessFault":
            whom = Party(fields["party"]) if "party" in fields else str(fields["node"])
            return ProcessFault(trigger, whom, action)
        case "LinkFault":
            link = fields["link"]
            return LinkFault(trigger, None if link is None else (link[0], link[1]), action)
        case "MessageFault":
            return MessageFault(trigger, action)
        case "CopyFault":
            return CopyFault(trigger, action)
        case "StoreFault":
            return StoreFault(trigger, action)
        case other:
            raise ValueError(f"{other} is no kind of fault")
