"""Folders side by side: of runs, or of searches."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from antiphon.errors import UsageError

from .compare_report import compare_page, compare_searches_page
from .comparison import Comparison
from .run_comparison import compare
from .run_folder import SEARCH, SavedRun, open_run
from .saved_search import SavedSearch, open_search
from .search_comparison import compare_searches


@dataclass(frozen=True, slots=True)
class ComparedFolders:
    """What was compared: `runs`, or else `searches`."""

    comparison: Comparison
    runs: tuple[SavedRun, ...] = ()
    searches: tuple[SavedSearch, ...] = ()

    def page(self) -> str:
        """The report, as HTML."""
        if self.searches:
            return compare_searches_page(self.comparison, self.searches)
        return compare_page(self.comparison, self.runs)


def compare_folders(folders: Sequence[Path]) -> ComparedFolders:
    """Each folder against the first. Raises `UsageError` that names what can't be compared."""
    of_searches = [(folder / SEARCH).exists() for folder in folders]
    if any(of_searches) and not all(of_searches):
        run, search = folders[of_searches.index(False)], folders[of_searches.index(True)]
        raise UsageError(f"compare: {search} holds a search, {run} does not; name one kind only")
    if any(of_searches):
        searches = tuple(map(open_search, folders))
        return ComparedFolders(compare_searches(searches, folders), searches=searches)
    runs = tuple(map(open_run, folders))
    return ComparedFolders(compare(runs), runs=runs)
