"""What a scenario's file says, and what is told of one that can't be run."""

from pathlib import Path

import pytest

from antiphon.errors import UsageError
from antiphon.perf import LinkTime
from antiphon.sim.fleet import (
    Reach,
    Scenario,
    StorePlan,
    fleet_spec,
    fleet_text,
    load_plan,
    parse_scenario,
    read_scenario,
)
from antiphon.sim.fleet.scenario import PublishedTimes, RooflineTimes
from antiphon.types import Role, Slo
from antiphon.workload import Trace

ROOT = Path(__file__).parents[3]
SCENARIOS = sorted((ROOT / "benchmarks/scenarios").glob("*.toml"))
TRACE = ROOT / "tests/workload/excerpts/mooncake_conversation.jsonl"
POOL = '[[pool]]\ndevice = "h100"\n'
LEAST = f'model = "llama-3-8b"\n{POOL}'
SPLIT = 'model = "llama-3-8b"\n' + "".join(
    f'[[pool]]\nrole = "{role}"\nworkers = 2\ndevice = "h100"\n' for role in ("prefill", "decode")
)
FAULT = '[[fault]]\nat = "5s"\n'
STORE = SPLIT + "[store]\ngigabytes = 5\n"


def parsed(text: str, seed: int | None = None) -> Scenario:
    return parse_scenario(text, Path("folder/it.toml"), seed)


def refused(text: str) -> str:
    with pytest.raises(UsageError) as error:
        parsed(text)
    said = str(error.value)
    assert said.startswith("folder/it.toml: "), said
    return said


def test_the_least_that_can_be_said() -> None:
    found = parsed(LEAST)
    assert (found.title, found.seed, found.duration_s, found.warmup_s) == ("it", 0, 60.0, 6.0)
    (pool,) = found.pools
    assert (pool.role, pool.workers, pool.times) == (Role.MIXED, 1, RooflineTimes(device="h100"))
    assert found.kv_bytes_per_token == 32 * 2 * 8 * 128 * 2
    assert found.context == 131_072
    plan = load_plan(found, found.seed)
    assert plan.rate_per_s == 1.0
    assert plan.slos == (("", Slo(ttft_s=0.25, tpot_s=0.1)),)


def test_all_of_it() -> None:
    found = parsed(
        'title = "all"\nmodel = "opt-13b"\nseed = 7\nduration = "2min"\nwarmup = "0s"\n'
        'start = "5s"\nkv-bytes-per-token = 1000\ncontext = 2048\n'
        '[load]\nworkload = "multi-turn"\narrivals = "bursts:cv=2"\nrate = 3\n'
        'slo = ["ttft=1s,tpot=50ms"]\nmax-tokens = 100\npatience = "9s"\ntoken-times = "ends"\n'
        'front = "10ms"\n'
        '[[pool]]\nname = "p"\nrole = "prefill"\nworkers = 2\npublished = "distserve"\ntensor = 2\n'
        "scheduler = { max_batched_tokens = 4096 }\n"
        '[[pool]]\nrole = "decode"\ndevice = "a100"\ntensor = 2\npipeline = 2\nweight-bits = 8\n'
        "kv-bits = 8\nkv-tokens = 5000\n"
        '[link]\ngigabytes-per-s = 50\nsetup = "1ms"\nlayerwise = true\n'
        "[router]\nttft_s = 1.0\n[scheduler]\nmax_num_seqs = 32\n[kv]\npage_tokens = 32\n"
        "[cluster]\nheartbeat_s = 0.5\n"
        '[[fault]]\nat = "5s"\ntarget = "p-1"\naction = "slow"\nfactor = 2\nfor = "1s"\n'
    )
    assert (found.seed, found.start_s, found.warmup_s) == (7, 5.0, 0.0)
    first, second = found.pools
    assert first.times == PublishedTimes(tensor=2)
    assert (first.scheduler.max_batched_tokens, first.scheduler.max_num_seqs) == (4096, 32)
    assert second.scheduler.max_batched_tokens == 512
    assert (second.kv_tokens, found.kv_bytes_per_token, found.context) == (5000, 1000, 2048)
    assert found.link.bytes_per_s == 50e9
    assert (found.users.max_tokens, found.users.patience_s, found.users.all_stamps) == (
        100,
        9.0,
        False,
    )
    assert found.users.front_s == 0.01
    spec = fleet_spec(found)
    assert (spec.devices, spec.config.kv.page_tokens) == (8, 32)
    assert spec.pools[1].kv_tokens == 5000
    assert [worker for worker, _ in found.workers] == ["p-0", "p-1", "decode-0"]


def test_stores_are_of_hosts() -> None:
    found = parsed(
        SPLIT + '[store]\ngigabytes = 64\nworkers-per-host = 2\nreach = "host"\nsetup = "1ms"\n'
        'ssd-gigabytes = 1000\nssd-gigabytes-per-s = 6\nssd-setup = "3ms"\npolicy = "lru"\n'
        'tenant-share = 0.5\nfetch-timeout = "8s"\n[link]\ngigabytes-per-s = 50\n'
    )
    assert found.store == StorePlan(
        host_bytes=64 * 10**9,
        workers_per_host=2,
        reach=Reach.HOST,
        link=LinkTime(setup_s=0.001, bytes_per_s=50e9),
        ssd_bytes=10**12,
        ssd=LinkTime(setup_s=0.003, bytes_per_s=6e9),
    )
    config = found.config.store
    assert (config.policy, config.tenant_share) == ("lru", 0.5)
    assert (config.fetch_timeout_s, config.lease_ttl_s) == (8.0, 12.0)
    assert fleet_spec(found).store == found.store
    assert fleet_text(fleet_spec(found)).endswith(
        "KV in 64 GB and 1000 GB of SSD of each of 2 hosts, each for its own"
    )
    pool = parsed(SPLIT + "[store]\ngigabytes = 64\n")
    assert pool.store is not None
    assert (pool.store.reach, pool.store.link.bytes_per_s) == (Reach.FLEET, 25e9)
    assert fleet_text(fleet_spec(pool)).endswith("KV in 64 GB of each of 4 hosts, one pool")
    assert parsed(SPLIT).store is None


def test_a_seed_goes_over_the_files_own() -> None:
    assert parsed("seed = 3\n" + LEAST).seed == 3
    found = parsed("seed = 3\n" + LEAST, 9)
    assert (found.seed, found.faults.seed) == (9, 9)


def test_a_trace_is_replayed_in_its_full_size_unless_it_says_otherwise() -> None:
    load = f'[load]\nworkload = "trace:{TRACE}'
    whole = parsed(f'{LEAST}{load}"\ncopies = 3\n').users
    assert isinstance(whole.workload, Trace)
    assert whole.workload.scaled_down is None
    assert whole.copies == 3
    small = parsed(f'{LEAST}{load},block=32"\n').users.workload
    assert isinstance(small, Trace)
    assert small.scaled_down


@pytest.mark.parametrize("file", SCENARIOS, ids=lambda file: file.stem)
def test_those_of_the_benchmarks_can_be_run(file: Path) -> None:
    if file.stem == "conversation" and not (ROOT.parent / "shared/traces").exists():
        pytest.skip("the trace is no part of the project")
    assert read_scenario(file).title


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("model = ", "no TOML"),
        (POOL, "model: it is missing"),
        ('model = "llama"\n' + POOL, "did you mean 'llama-3-8b'"),
        ('model = "my-own"\n' + POOL, "or give kv-bytes-per-token and context"),
        ("model = 5\n" + POOL, "model: 5 must be a text"),
        ('modle = "x"\n' + LEAST, "modle: no such key: did you mean model?"),
        ('duration = "10"\n' + LEAST, 'duration: "10" must be a time'),
        ('duration = "0s"\n' + LEAST, 'duration: "0s" must be 1s'),
        ('warmup = "60s"\n' + LEAST, "warmup: takes all of the 60 s"),
        ("seed = -1\n" + LEAST, "seed: -1 must be 0"),
        ("load = 1\n" + LEAST, "load: must be a table: [load]"),
        ("[pool]\ndevice = 'h100'\n" + 'model = "llama-3-8b"', "pool: must be tables: [[pool]]"),
        ('model = "llama-3-8b"\n', "pool: 1 to 64 tables [[pool]] are needed"),
        ('model = "llama-3-8b"\n[[pool]]\nrole = "prefill"\ndevice = "h100"\n', "nobody decodes"),
        ('model = "llama-3-8b"\n[[pool]]\nrole = "decode"\ndevice = "h100"\n', "computes prompts"),
        (LEAST + POOL, 'two are called "mixed"'),
        (LEAST + "workers = 0\n", "pool 1: workers: 0 must be 1 to 4096"),
        (LEAST + "workers = 1.5\n", "pool 1: workers: 1.5 must be a whole number"),
        (LEAST + 'role = "both"\n', 'pool 1: role: "both" must be one of'),
        (LEAST + 'name = "a b"\n', "pool 1: name:"),
        (LEAST + 'profile = "x.json"\n', "not device and profile"),
        ('model = "llama-3-8b"\n[[pool]]\n', "exactly one of device, profile, published"),
        ('model = "llama-3-8b"\n[[pool]]\npublished = "mine"\n', '"mine" must be "distserve"'),
        ('model = "llama-3-8b"\n[[pool]]\npublished = "distserve"\n', "Known are opt-13b TP1"),
        ('model = "llama-3-8b"\n[[pool]]\ndevice = "h10"\n', "device 'h10' is not known"),
        ('model = "llama-3-70b"\n' + POOL, "does not fit TP1 PP1 on h100"),
        (LEAST + "tensor = 5\n", "does not divide the 32 heads"),
        (LEAST + "pipeline = 99\n", "llama-3-8b has 32 layers"),
        (LEAST + "weight-bits = 7\n", "weight-bits: 7 must be one of 16, 8, 4"),
        (LEAST + "wieght-bits = 8\n", "did you mean weight-bits?"),
        (LEAST + "kv-tokens = 5\n", "kv-tokens: 5 must be 1024"),
        (SPLIT + "kv-bits = 8\n", "kv-bits: must be the same in all pools"),
        (
            'model = "llama-3-8b"\n[[pool]]\nprofile = "no.json"\n',
            "kv-tokens: a profile does not say",
        ),
        (
            'model = "llama-3-8b"\n[[pool]]\nprofile = "no.json"\nkv-tokens = 9999\n',
            "no.json: can't be read",
        ),
        (LEAST + "scheduler = { max_num_seq = 1 }\n", "max_num_seqs"),
        (LEAST + "[scheduler]\nmax_num_seqs = 0\n", "max_num_seqs"),
        (LEAST + "[kv]\nmemory_bytes = 1\n", "kv.memory_bytes: has no effect"),
        (LEAST + '[router]\npolicy = "best"\n', "policy"),
        (LEAST + "[http]\nport = 1\n", "http: no such key"),
        (LEAST + "[link]\ngigabytes-per-s = 0\n", "[link] gigabytes-per-s: 0 must be"),
        (LEAST + '[link]\nlayerwise = "yes"\n', '[link] layerwise: "yes" must be true or false'),
        (LEAST + "[link]\nspeed = 1\n", "[link] speed: no such key"),
        (LEAST + '[load]\nworkload = "chatter"\n', "[load] workload: must be one of"),
        (LEAST + '[load]\nworkload = "trace:no.jsonl"\n', "[load] folder/no.jsonl"),
        (LEAST + '[load]\narrivals = "rush"\n', "[load] arrivals: must be one of"),
        (LEAST + "[load]\nrate = 0\n", "[load] rate: 0 must be"),
        (LEAST + "[load]\ncopies = 2\n", "[load] copies: is for traces"),
        (LEAST + '[load]\nslo = "ttft=1s"\n', '[load] slo: "ttft=1s" must be a list of texts'),
        (LEAST + '[load]\nslo = ["p99=1s"]\n', '[load] slo "p99=1s": "p99=1s" is no target'),
        (LEAST + '[load]\nslo = ["code:ttft=1s"]\n', '"code": the workload has no such class'),
        (LEAST + '[load]\nslo-preset = ["fast"]\n', '[load] slo-preset "fast": must be one of'),
        (LEAST + '[load]\ntoken-times = "some"\n', 'token-times: "some" must be one of'),
        (LEAST + "[fault]\n", "fault: must be tables: [[fault]]"),
        (
            SPLIT + FAULT + 'target = "random"\naction = "explode"\n',
            "must be one of kill, stop, resume, slow, cut, drain, restart, fill-disk",
        ),
        (SPLIT + FAULT + 'action = "corrupt"\n', 'fault 1: action: "corrupt" is none here'),
        (
            SPLIT + FAULT + 'target = "random"\naction = "delay"\nby = "1s"\nfor = "1s"\n',
            'fault 1: action: "delay" is none here: must be one of kill, stop, resume, slow',
        ),
        (SPLIT + FAULT + 'target = "store"\naction = "kill"\n', "fault 1 (kill): target: a fleet"),
        (STORE + FAULT + 'target = "store"\naction = "stop"\n', "can have kill and fill-disk"),
        (STORE + FAULT + 'action = "fill-disk"\nfor = "5s"\n', "have no SSD: give ssd-gigabytes"),
        (LEAST + "[store]\nreach = 'host'\n", "[store] gigabytes: it is missing"),
        (LEAST + "[store]\ngigabytes = -1\n", "[store] gigabytes: -1 must be 0"),
        (LEAST + "[store]\ngigabytes = 0.001\n", "have no room for a block of 64 tokens"),
        (LEAST + "[store]\ngigabytes = 1e6\n[kv]\nblock_tokens = 16\n", "more than the 50,000,000"),
        (LEAST + "[store]\ngigabyte = 5\n", "[store] gigabyte: no such key: did you mean"),
        (LEAST + "[store]\ngigabytes = 5\nreach = 'rack'\n", '[store] reach: "rack" must be one'),
        (LEAST + "[store]\ngigabytes = 5\nsetup = 1\n", "[store] setup: 1 must be a time"),
        (LEAST + "[store]\ngigabytes = 5\npolicy = 'fifo'\n", "store.policy"),
        (LEAST + "[store]\ngigabytes = 5\ntenant-share = 0\n", "store.tenant_share"),
        (LEAST + "[store]\ngigabytes = 5\nfetch-timeout = '2m'\n", "store.fetch_timeout_s"),
        (LEAST + "[store]\ngigabytes = 5\n[kv]\nprefix_cache = false\n", "needs kv.prefix_cache"),
        (SPLIT + FAULT + 'target = "gateway"\naction = "cut"\n', "name a worker"),
        (SPLIT + FAULT + 'target = "mixed"\naction = "kill"\n', "no worker of role"),
        (SPLIT + FAULT + 'target = "decode-9"\naction = "kill"\n', 'there is no worker "decode-9"'),
        (LEAST + FAULT + 'target = "random"\naction = "kill"\n', "no worker can be spared"),
        (
            SPLIT + '[[fault]]\nafter-event = "offer"\ntarget = "decode"\naction = "restart"\n',
            "after-event: say when with at or every",
        ),
    ],
)
def test_what_can_not_be_run_is_refused_by_name(text: str, said: str) -> None:
    assert said in refused(text)


def test_a_file_that_can_not_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="can't be read: No such file"):
        read_scenario(tmp_path / "no.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="it is no text in UTF-8"):
        read_scenario(tmp_path / "binary.toml")
    (tmp_path / "long.toml").write_text("# " + "x" * 2**20)
    with pytest.raises(UsageError, match="longer than"):
        read_scenario(tmp_path / "long.toml")


def test_paths_count_from_the_scenarios_folder(tmp_path: Path) -> None:
    (tmp_path / "it.jsonl").write_bytes(TRACE.read_bytes())
    scenario = tmp_path / "it.toml"
    scenario.write_text(LEAST + '[load]\nworkload = "trace:it.jsonl"\n')
    workload = read_scenario(scenario).users.workload
    assert isinstance(workload, Trace)
    assert workload.file == tmp_path / "it.jsonl"
