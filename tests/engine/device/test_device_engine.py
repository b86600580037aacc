"""Plans on a torch device: samples, forks, preemptions; and where tensors lie."""

import ast
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from device_kit import DEVICES, LIKE_CUDA, NEEDS_CUDA, DeviceBench, model_on
from engine_driver import Driver, request_of, resumed
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_llama import model_of, random_tokens, tensors_of
from torch.fx.experimental.proxy_tensor import make_fx

import antiphon
from antiphon.checkpoint import Experts
from antiphon.engine.device import (
    DeviceKv,
    DeviceLlama,
    check_room,
    device_numerics_id,
    load_on_device,
    open_device,
)
from antiphon.engine.device.cuda_graphs import StepGraphs
from antiphon.engine.device.device_llama import Compute, run_at_once
from antiphon.engine.device.expert_rows import choose
from antiphon.engine.device.shapes import shapes_of
from antiphon.engine.device.step_tensors import StepShape, StepTensors
from antiphon.engine.expert_choice import choose_experts
from antiphon.engine.expert_mix import ExpertWeights, rules_of
from antiphon.engine.kv_memory import KvDtype, layout_of
from antiphon.engine.model import Model
from antiphon.engine.numerics import numerics_id
from antiphon.engine.torch_engine import TorchEngine
from antiphon.errors import BugError, UsageError
from antiphon.testing.tiny_families import FAMILY_SPECS
from antiphon.types import SequenceKey

SPEC = FAMILY_SPECS["llama"]
FACTORIES = {
    "arange", "as_tensor", "empty", "empty_strided", "eye", "full", "linspace", "ones", "rand",
    "randint", "randn", "randperm", "scalar_tensor", "tensor", "zeros",
}  # fmt: skip
"""Of torch: what makes a tensor, on the default device unless one is named."""


class DeviceDriver(Driver):
    """A `Driver` of an engine on a device."""

    def __init__(self, model: DeviceLlama, device: str, page_tokens: int = 16) -> None:
        super().__init__(model, page_tokens=page_tokens)  # type: ignore[arg-type]
        memory = DeviceKv(layout_of(model.spec, page_tokens), 200, torch.device(device))
        memory.flat.fill_(float("nan"))
        self.memory = memory  # type: ignore[assignment]
        self.engine = TorchEngine(model, memory)  # type: ignore[assignment]


@DEVICES
@settings(deadline=None, max_examples=10)
@given(st.data())
def test_tokens_depend_on_neither_neighbours_nor_chunks_nor_pages(
    device: str, data: st.DataObject
) -> None:
    model = model_on(device, "llama")
    requests = [
        request_of(
            f"r{number}",
            data.draw(st.lists(st.integers(0, SPEC.vocab_size - 1), min_size=1, max_size=60)),
            seed=number,
            n=data.draw(st.integers(1, 2)),
            max_tokens=data.draw(st.integers(1, 8)),
            temperature=data.draw(st.sampled_from([0.0, 1.0])),
        )
        for number in range(data.draw(st.integers(1, 3)))
    ]
    driver = DeviceDriver(model, device, data.draw(st.sampled_from([1, 16, 64])))
    tracks = driver.run(requests, chunk=data.draw(st.sampled_from([7, 64, 1000])))
    assert driver.engine.held == 0
    for request in requests:
        single = DeviceDriver(model, device).run([request])
        for key, track in single.items():
            assert tracks[key].outputs == track.outputs


@DEVICES
def test_resumed_and_preempted_it_goes_on_as_if_nothing_had_happened(device: str) -> None:
    request = request_of("r", range(40), max_tokens=12, temperature=1.0)
    model, key = model_on(device, "llama"), SequenceKey(request_of("r", [1]).id, 0)
    whole = DeviceDriver(model, device).run([request])[key].outputs
    again = DeviceDriver(model, device).run([resumed(request, whole[:5])])
    assert again[key].outputs == whole
    driver = DeviceDriver(model, device)
    [track] = driver.start(request)
    while not track.finished:
        if len(track.outputs) == 6 and track.computed > 40:
            driver.preempt(track, 2)
        driver.step([track], {track.key: track})
    assert track.outputs == whole


@DEVICES
def test_it_says_what_the_processors_engine_says(device: str) -> None:
    """In fp32 both are within rounding of the same numbers: see the oracle's tests."""
    request = request_of("r", range(70), max_tokens=30)
    here = DeviceDriver(model_on(device, "llama"), device).run([request])
    there = Driver(model_of(SPEC)).run([request])
    assert [t.outputs for t in here.values()] == [t.outputs for t in there.values()]


@DEVICES
def test_experts_are_counted(device: str) -> None:
    model = model_on(device, "dots1")
    driver = DeviceDriver(model, device)
    driver.engine.forget_counts()
    driver.run([request_of("r", range(20), max_tokens=3)])
    said, experts = driver.engine.expert_tokens(), FAMILY_SPECS["dots1"].experts
    assert said is not None and experts is not None
    sparse = FAMILY_SPECS["dots1"].layers - len(experts.dense_layers)
    assert sum(said.totals) == 22 * experts.active * sparse


RULES = [
    FAMILY_SPECS["dots1"].experts,
    FAMILY_SPECS["qwen3_moe"].experts,
    FAMILY_SPECS["mixtral"].experts,
]


@DEVICES
@pytest.mark.parametrize("experts", RULES, ids=["dots1", "qwen3_moe", "mixtral"])
@pytest.mark.parametrize("tied", [False, True])
def test_experts_are_chosen_as_the_processors_kernel_does(
    experts: Experts, tied: bool, device: str
) -> None:
    """Of equal scores the lower number, too."""
    generator = torch.Generator().manual_seed(4)
    router = torch.randn(experts.count, 32, generator=generator)
    if tied:
        router[1::2] = router[::2]
    rows = torch.randn(40, 32, generator=generator)
    correction = torch.randn(experts.count, generator=generator) * experts.corrected * (not tied)
    chosen = torch.empty(40, experts.active + experts.shared, dtype=torch.int64).numpy()
    shares = torch.empty(40, experts.active + experts.shared).numpy()
    rules = rules_of(experts)
    choose_experts(rows.numpy(), router.numpy(), correction.numpy(), rules, chosen, shares)
    weights = ExpertWeights(
        router=router.to(device), correction=correction.to(device), gate_up=(), down=()
    )
    found, weighed = choose(
        rows.to(device), weights, experts, shapes_of(torch.device(device), torch.float32)
    )
    assert (found.cpu().numpy() == chosen[:, : experts.active]).all()
    torch.testing.assert_close(weighed.cpu(), torch.from_numpy(shares[:, : experts.active]))


def test_layers_that_come_are_waited_for() -> None:
    """It begins when all are here: pages come to a device whole."""
    model, waited = model_on("cpu", "llama"), []

    class Coming:
        starts = (0, 1)

        def wait(self, group: int) -> bool:
            waited.append(group)
            return group != 1

    bench = DeviceBench(model, "cpu", 16, 4)
    assert model.forward_as_it_comes(None, bench.memory, Coming()) is None  # type: ignore[arg-type]
    assert waited == [0, 1]


def test_whatever_may_change_a_bit_is_in_the_numerics_id() -> None:
    cpu = torch.device("cpu")
    exact, own = LIKE_CUDA, shapes_of(cpu, torch.float32)
    ids = [
        device_numerics_id(cpu, dtype, kv, shapes, long_rope=long)
        for dtype, kv in (("fp32", KvDtype.FP32), ("fp32", KvDtype.BF16), ("bf16", KvDtype.BF16))
        for shapes in (exact, own, replace(own, tile=2 * own.tile))
        for long in (False, True)
    ]
    assert len({*ids, numerics_id("fp32"), numerics_id("int8")}) == len(ids) + 2


def test_the_processor_is_always_there_and_has_room() -> None:
    device = open_device("cpu", number=3)
    assert device == torch.device("cpu")
    check_room(device, weights=2**60, kv=2**60)
    with pytest.raises(BugError, match="'gpu'"):
        open_device("gpu")
    with pytest.raises(UsageError, match=r'model\.dtype = "int8"'):
        load_on_device(None, device=device, dtype="int8")  # type: ignore[arg-type]


# ── where tensors lie ────────────────────────────────────────────────────────────────────────────


def unplaced(tree: ast.AST) -> Iterator[int]:
    """Lines of calls like torch.zeros(…) that name no device."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="torch"), attr=name)):
                if name in FACTORIES and "device" not in {one.arg for one in node.keywords}:
                    yield node.lineno
            case _:
                pass


PARTS = ("engine", "live", "llm", "moefy")


def test_no_tensor_is_made_without_a_device() -> None:
    root = Path(antiphon.__file__).parent
    files = [file for part in PARTS for file in sorted((root / part).rglob("*.py"))]
    found = [
        f"{file.relative_to(root)}:{line}"
        for file in files
        for line in unplaced(ast.parse(file.read_text()))
    ]
    assert len(files) > 100
    assert not found


def test_control_such_a_tensor_is_found() -> None:
    source = (
        "x = torch.zeros(3)\ny = torch.zeros(3, device=d)\nz = x.new_zeros(3)\ntorch.arange(4)\n"
    )
    assert list(unplaced(ast.parse(source))) == [1, 4]


@DEVICES
@pytest.mark.parametrize("family", ["llama", "gemma3", "dots1"])
def test_a_pass_leaves_nothing_to_the_default_device(family: str, device: str) -> None:
    """The default is a device that holds no numbers: whatever came from there would raise."""
    tokens = random_tokens(FAMILY_SPECS[family], 50, 3)
    model, said = model_on(device, family), []
    for default in ("cpu", "meta"):
        bench = DeviceBench(model, device, 16, 8)
        lane = bench.lane(tokens)
        with torch.device(default):
            said.append(
                [bench.model.forward(*batch(bench, lane, count)).clone() for count in (49, 1)]
            )
    for ours, theirs in zip(*said, strict=True):
        assert torch.equal(ours, theirs)


def batch(bench: DeviceBench, lane, count: int):
    from antiphon.engine.batch import Batch, Run

    tokens = lane.tokens[lane.done : lane.done + count]
    run = Run(tokens=tokens, start=lane.done, table=lane.table, sampled=True)
    lane.done += count
    return Batch.of([run], bench.memory.layout), bench.memory


# ── captured steps ───────────────────────────────────────────────────────────────────────────────


class Traced:
    """Like `StepGraphs` on the processor: the first step of a shape is traced, operation by
    operation, and what was traced is run for all later ones, on other numbers."""

    def __init__(self) -> None:
        self.traced: dict[StepShape, Any] = {}
        self.replayed = 0

    def __call__(
        self, compute: Compute, shape: StepShape, packed: torch.Tensor, memory: DeviceKv
    ) -> torch.Tensor:
        self.replayed += shape in self.traced
        with torch.inference_mode(mode=False), torch.no_grad():
            packed = packed.clone()
            if shape not in self.traced:
                self.traced[shape] = make_fx(
                    lambda numbers: compute(StepTensors.of(shape, numbers), memory)
                )(packed)
            return self.traced[shape](packed)


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_a_step_may_be_captured_and_run_again_on_another_batch(family: str) -> None:
    """Nothing in it but the packed numbers says what is computed, or it would say it again."""
    spec = FAMILY_SPECS[family]
    requests = [request_of(f"r{n}", range(n, n + 20), max_tokens=24) for n in range(3)]
    said = []
    for runner in (run_at_once, traced := Traced()):
        model = DeviceLlama(
            spec,
            tensors_of(spec),
            device=torch.device("cpu"),
            dtype=torch.float32,
            shapes=LIKE_CUDA,
            runner=runner,
        )
        tracks = DeviceDriver(model, "cpu").run(requests)
        said.append([track.outputs for track in tracks.values()])
    assert said[0] == said[1]
    assert len({tuple(outputs) for outputs in said[0]}) == 3
    assert len(traced.traced) <= 3 and traced.replayed >= 18


# ── CUDA alone ───────────────────────────────────────────────────────────────────────────────────


@NEEDS_CUDA
def test_a_captured_step_says_what_it_says_without() -> None:
    plain = model_on("cuda:0", "llama")
    graphs = StepGraphs(torch.device("cuda:0"))
    captured = model_on("cuda:0", "llama", "fp32", "own", 1)
    requests = [request_of(f"r{n}", range(n, n + 20), max_tokens=40) for n in range(5)]
    expected = DeviceDriver(plain, "cuda:0").run(requests)
    try:
        captured._runner = graphs
        found = DeviceDriver(captured, "cuda:0").run(requests)
    finally:
        captured._runner = plain._runner
    assert len(graphs)
    assert [t.outputs for t in found.values()] == [t.outputs for t in expected.values()]


def test_the_engine_takes_it_for_a_model() -> None:
    model: Model[DeviceKv] = model_on("cpu", "llama")
    assert model.context_len == SPEC.context_len
    assert replace(SPEC) == model.spec
