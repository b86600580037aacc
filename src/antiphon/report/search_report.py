"""The report of a search, as a page."""

from collections.abc import Sequence

from antiphon.core.goodput import Goodput, SloScale
from antiphon.types import LoadRun

from . import wording
from .cells import point_cells, probe_cells
from .findings import scale_headline, search_headline
from .page import drawn, facts, rendered
from .plots import rate_plot, scale_plot


def search_page(run: LoadRun, found: Goodput, probes: Sequence[str] = ()) -> str:
    """The search for goodput; `probes`: folders, beside the page, of its runs."""
    return rendered(
        "search.html",
        run,
        headline=search_headline(found),
        warnings=run.notes,
        plot=drawn(rate_plot(found)),
        caption=(
            "Each point is a rate that was measured, with the 95 % interval of its share. Goodput "
            "is the highest rate at which the goal is still met; shaded is where noise may have "
            "moved it. Dashed and dotted: each target alone, which says which of them gives way."
        ),
        columns=("rate", "runs", "calls", "met both (95 % interval)", "TTFT", "TPOT", "verdict"),
        rows=[
            (wording.rate(probe.rate_per_s), *probe_cells(probe, found.goal))
            for probe in found.probes
        ],
        text_columns=(6,),
        note=(
            "The point estimate decides; the interval only says when to stop measuring. Since "
            "attainment can't rise with the rate, neighbours in the wrong order are taken together."
        ),
        facts_of_run=[fact for fact in facts(run) if fact[0] not in ("rate", "duration")],
        probes=probes,
    )


def scale_page(run: LoadRun, found: SloScale, probes: Sequence[str] = ()) -> str:
    """Attainment over targets that are stricter or laxer; `probes` as in `search_page`."""
    return rendered(
        "search.html",
        run,
        headline=scale_headline(found),
        warnings=run.notes,
        plot=drawn(scale_plot(found)),
        caption=(
            "The same calls, judged by targets that are so many times as long: left is stricter. "
            "The further left a server stays above the goal, the better."
        ),
        columns=("scale", "calls", "met both (95 % interval)", "TTFT", "TPOT"),
        rows=[point_cells(point) for point in found.curve],
        text_columns=(),
        note=(
            "A server that is told its targets and acts on them would have to be measured anew at "
            "each scale; this holds for one that is not."
        ),
        facts_of_run=[fact for fact in facts(run) if fact[0] not in ("rate", "duration")],
        probes=probes,
    )
