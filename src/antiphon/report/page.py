"""What all pages have in common: one HTML file each, that loads nothing and runs no scripts.

Whatever comes from a server or a user is escaped, here and within plots.
"""

from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from antiphon.core.number_text import number_text
from antiphon.types import LoadRun

from . import wording
from .plots import Plot, svg


@cache
def _templates() -> Environment:
    return Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def rendered(template: str, run: LoadRun, **parts: object) -> str:
    """The page; `run` gives its title, unless `parts` have one."""
    parts = {"title": run.title, "version": run.version, **parts}
    return _templates().get_template(template).render(parts)


def drawn(plot: Plot) -> Markup:
    """As it is: what is text in it has been escaped when it was drawn."""
    return Markup(svg(plot))


def facts(run: LoadRun) -> list[tuple[str, str]]:
    """What was run, fact by fact; the same facts in the same order for every run."""
    slos = [
        f"{name}: {wording.slo(slo)}" if name or len(run.slos) > 1 else wording.slo(slo)
        for name, slo in run.slos
    ]
    rate = "the trace's own times" if run.rate_per_s is None else wording.set_rate(run.rate_per_s)
    lasted, is_virtual = number_text(run.duration_s), not run.started_at
    used = "" if is_virtual else f" used {wording.share(run.client_busy)} of a core"
    return [
        ("server", run.target),
        ("model", run.model),
        ("workload", run.workload),
        ("arrivals", run.arrivals),
        ("rate", rate),
        ("duration", f"{lasted} s, of which {number_text(run.warmup_s)} s are warm-up"),
        ("targets", "; ".join(slos) or "none"),
        ("devices", str(run.devices)),
        ("seed", str(run.seed)),
        ("begun", run.started_at or "in virtual time"),
        ("client", f"{run.version}{used}".strip()),
        ("command", run.command),
    ]
