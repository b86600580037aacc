"""Runs that are on disk: side by side, or drawn again."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import typer

from antiphon.errors import UsageError
from antiphon.host import write_whole
from antiphon.report import (
    RUN,
    SEARCH,
    compare,
    compare_page,
    compare_searches,
    compare_searches_page,
    compare_table,
    open_run,
    open_search,
    probe_folders,
)
from antiphon.report.strict_json import encode_file

from .bench_results import Results, show, width
from .progress import tell

_LISTED = 5


def compare_folders(folders: Sequence[Path], page: Path | None, *, as_json: bool) -> None:
    """Print what is in them, runs or searches, beside the first one.

    Raises `UsageError` for what is neither, and for runs beside searches.
    """
    if len(folders) < 2:
        raise UsageError("compare: needs two folders or more")
    are_searches = {(folder / SEARCH).exists() for folder in folders}
    if len(are_searches) > 1:
        raise UsageError("compare: some of the folders hold a run, some a search")
    if are_searches.pop():
        searches = [open_search(folder) for folder in folders]
        comparison = compare_searches(searches, folders)
        drawn = partial(compare_searches_page, comparison, searches)
    else:
        runs = [open_run(folder) for folder in folders]
        comparison = compare(runs)
        drawn = partial(compare_page, comparison, runs)
    if as_json:
        typer.echo(encode_file(comparison).decode(), nl=False)
    else:
        show(compare_table(comparison, width=width()))
    if page is not None:
        write_whole(page, drawn().encode())
        tell(f"Comparison: {page}", err=True)


def report_again(folder: Path, *, as_json: bool) -> None:
    """Print a run or a search, and draw its page. Raises `UsageError` for what is neither."""
    from antiphon.runs import Measured

    results = Results(folder, as_json)
    if (folder / SEARCH).exists():
        results.tell_search(open_search(folder))
        return
    if not (folder / RUN).exists() and (probes := probe_folders(folder)):
        some = ", ".join(probe.name for probe in probes[:_LISTED])
        raise UsageError(
            f"{folder}: a search that was broken off before its first run was over; its runs are "
            f"{some}: name one of them"
        )
    saved = open_run(folder)
    results.tell_run(
        Measured(run=saved.run, records=saved.records, summary=saved.summary, whole=saved.whole)
    )
