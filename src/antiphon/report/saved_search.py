"""What a search found, on disk: `search.json` and a page, beside the folders of its runs."""

from dataclasses import dataclass
from pathlib import Path

from antiphon.core.goodput import Goodput, SloScale
from antiphon.errors import UsageError
from antiphon.host import write_whole
from antiphon.types import LoadRun

from .run_folder import REPORT, SEARCH, read_file, write_file
from .search_report import scale_page, search_page


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedSearch:
    """Exactly one of `goodput` and `slo_scale` is there. `run`: what its runs have in common.

    `probes`: the folders of its runs, in their order, relative to the search's.
    """

    run: LoadRun
    goodput: Goodput | None = None
    slo_scale: SloScale | None = None
    probes: tuple[str, ...] = ()

    def page(self) -> str:
        """Its report."""
        if self.goodput is not None:
            return search_page(self.run, self.goodput, self.probes)
        assert self.slo_scale is not None
        return scale_page(self.run, self.slo_scale, self.probes)


def save_search(folder: Path, search: SavedSearch) -> None:
    """Write `search.json` and `report.html` into a folder that was taken (`take_folder`).

    May be called again while the search goes on. Raises `UsageError` if that can't be.
    """
    write_file(folder / SEARCH, search)
    write_whole(folder / REPORT, search.page().encode())


def open_search(folder: Path) -> SavedSearch:
    """What `save_search` wrote. Raises `UsageError` that names the file and the field."""
    search = read_file(folder / SEARCH, SavedSearch)
    if (search.goodput is None) == (search.slo_scale is None):
        raise UsageError(f"{folder / SEARCH}: goodput, slo_scale: exactly one must be there")
    return search
