"""What came of a run, for people: numbers, tables, plots, pages, and a folder that keeps them.

records ─► summarise ─► RunSummary ─┬─► summary_table     terminal
                                    ├─► run_page          HTML with plots
                                    └─► RunWriter         folder ─► open_run ─► compare
"""

from .compare_report import compare_page, compare_searches_page
from .compared_folders import ComparedFolders, compare_folders
from .comparison import Against, Better, Cell, Comparison, Row
from .fault_costs import FaultCost, FaultCosts, fault_lines
from .findings import doubts, headline, scale_headline, search_headline
from .over_seeds import OverSeeds, Spread, goodput_over_seeds, over_seeds, seeds_table
from .run_comparison import compare
from .run_folder import (
    REPORT,
    RUN,
    SEARCH,
    RunWriter,
    SavedRun,
    check_folder,
    holds_run,
    open_run,
    probe_folders,
    read_file,
    runs_within,
    save_run,
    take_folder,
    write_file,
)
from .run_report import run_page
from .run_summary import Failures, Group, Latencies, RunSummary, Sessions, summarise
from .saved_search import SavedSearch, open_search, save_search
from .search_comparison import compare_searches
from .search_report import scale_page, search_page
from .strict_json import encode_file
from .table import empty_table, printed
from .terminal import compare_table, search_table, summary_table
from .time_line import Interval

__all__ = [
    "REPORT",
    "RUN",
    "SEARCH",
    "Against",
    "Better",
    "Cell",
    "ComparedFolders",
    "Comparison",
    "Failures",
    "FaultCost",
    "FaultCosts",
    "Group",
    "Interval",
    "Latencies",
    "OverSeeds",
    "Row",
    "RunSummary",
    "RunWriter",
    "SavedRun",
    "SavedSearch",
    "Sessions",
    "Spread",
    "check_folder",
    "compare",
    "compare_folders",
    "compare_page",
    "compare_searches",
    "compare_searches_page",
    "compare_table",
    "doubts",
    "empty_table",
    "encode_file",
    "fault_lines",
    "goodput_over_seeds",
    "headline",
    "holds_run",
    "open_run",
    "open_search",
    "over_seeds",
    "printed",
    "probe_folders",
    "read_file",
    "run_page",
    "runs_within",
    "save_run",
    "save_search",
    "scale_headline",
    "scale_page",
    "search_headline",
    "search_page",
    "search_table",
    "seeds_table",
    "summarise",
    "summary_table",
    "take_folder",
    "write_file",
]
