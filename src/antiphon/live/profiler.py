"""Measures how long an engine's steps take, and fits a model to it."""

import os
import platform
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from antiphon.core.arithmetic import dtype_of
from antiphon.core.device_name import parse_device
from antiphon.core.kv import entry_pages
from antiphon.core.number_text import plural
from antiphon.engine import device_title, open_device, use_cores
from antiphon.perf import Limits, Point, Profile, ProfiledEngine, accuracy, fit_step_time
from antiphon.types import Config, Seconds

from .loaded_model import load_model
from .step_survey import Advance, StepSurvey, SurveyedStep


def profile(
    config: Config,
    *,
    budget_s: Seconds,
    measured_at: str,
    say: Callable[[str], None],
    advance: Advance,
    seed: int = 0,
) -> Profile:
    """Load the model of `config` and measure for about `budget_s`, after loading.

    `seed` picks the held-out points and the order. Raises `UsageError`: the model or the memory is
    not right, or the budget is too short for any fit.
    """
    cores = use_cores(config.engine.cores)
    model = load_model(config, say)
    together = entry_pages(model.info.kv_groups)
    limits = Limits(
        max_model_len=model.max_model_len,
        pages=model.scheduler.view(0.0).total_pages // together,
        page_tokens=config.kv.page_tokens,
        entry_pages=together,
    )
    load = _load_per_core()
    where = _where(config)
    place = where or plural(cores, "core")
    say(f"Measuring {config.model.name} on {place} for at most {budget_s:g} s")
    survey = StepSurvey(model.engine, limits, model.info.vocab_size, seed)
    steps = survey.run(budget_s, time.monotonic, advance)
    engine = ProfiledEngine(
        model=model.info.name,
        identity=model.info.identity.hex(),
        numerics=model.info.numerics,
        dtype=dtype_of(config.model.quantize, config.model.dtype),
        cores=cores,
        page_tokens=limits.page_tokens,
        max_model_len=limits.max_model_len,
        machine=where or _machine(),
    )
    return fitted(steps, engine, measured_at, load, left_out=survey.count - len(steps))


def fitted(
    steps: Sequence[SurveyedStep],
    engine: ProfiledEngine,
    measured_at: str,
    load: float,
    *,
    left_out: int = 0,
) -> Profile:
    """The profile of measured steps. The held-out ones judge the fit and are not part of it."""
    seen = [step.measured for step in steps if not step.held_out]
    unseen = [step.measured for step in steps if step.held_out]
    model = fit_step_time(seen)
    points = tuple(
        Point(
            shape=step.shape,
            held_out=step.held_out,
            seconds=step.measured.seconds,
            predicted_s=model.seconds_of(step.shape.work),
            spread=step.spread,
            repeats=len(step.times),
        )
        for step in steps
    )
    return Profile(
        engine=engine,
        measured_at=measured_at,
        load=load,
        left_out=left_out,
        step_time=model,
        fitted=accuracy(model, seen),
        held_out=accuracy(model, unseen),
        points=points,
    )


def _where(config: Config) -> str:
    """The device's name, if it is no processor."""
    name = parse_device(config.engine.device)
    return device_title(open_device(config.engine.device)) if name and name.cuda else ""


def _load_per_core() -> float:
    if not hasattr(os, "getloadavg"):
        return 0.0
    return round(os.getloadavg()[0] / (os.cpu_count() or 1), 2)


def _machine() -> str:
    """The processor's name as Linux tells it, else what Python knows."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())
