"""Goodput, the yardstick: what a call's latencies are, whether it met its targets, and the search
for the highest rate at which enough calls do. One definition for everything that measures."""

from .attainment import GOAL, Attainment, after_warmup
from .distribution import Distribution, percentile
from .estimate import Z95, Estimate, difference, percentile_estimate, share, share_in_order
from .goodput import Goodput, Probe, StopReason
from .goodput_search import GoodputSearch
from .latency import e2e_s, gaps_s, served, tpot_s, ttft_s
from .search_rules import RunAt, SearchRules
from .slo_scale import (
    DEFAULT_SCALES,
    ScalePoint,
    ScaleRules,
    SloScale,
    SloScaleSearch,
    scale_curve,
    tightest_scale,
)
from .verdict import (
    NO_TARGETS,
    Slos,
    Verdict,
    check_targets,
    judge,
    needed_scale,
    scaled,
    scaled_all,
    slo_of,
)

__all__ = [
    "DEFAULT_SCALES",
    "GOAL",
    "NO_TARGETS",
    "Z95",
    "Attainment",
    "Distribution",
    "Estimate",
    "Goodput",
    "GoodputSearch",
    "Probe",
    "RunAt",
    "ScalePoint",
    "ScaleRules",
    "SearchRules",
    "SloScale",
    "SloScaleSearch",
    "Slos",
    "StopReason",
    "Verdict",
    "after_warmup",
    "check_targets",
    "difference",
    "e2e_s",
    "gaps_s",
    "judge",
    "needed_scale",
    "percentile",
    "percentile_estimate",
    "scale_curve",
    "scaled",
    "scaled_all",
    "served",
    "share",
    "share_in_order",
    "slo_of",
    "tightest_scale",
    "tpot_s",
    "ttft_s",
]
