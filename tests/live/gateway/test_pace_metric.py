"""What Prometheus reads of paces."""

from puppet_link import PuppetLink, worker_info

from antiphon.live.gateway.cluster_metrics import pace_family
from antiphon.types import Health, Member, Role, WorkerId


def test_a_worker_of_which_nothing_is_known_has_no_sample() -> None:
    infos = [
        worker_info(vocab_size=8, eos=(), name=name, role=role)
        for name, role in (("a", Role.PREFILL), ("b", Role.DECODE))
    ]
    members = [Member(one, Health.JOINED, PuppetLink(one).view()) for one in infos]
    [sample] = pace_family("m", members, {WorkerId("b"): 1.25}).samples
    assert (sample.name, sample.value) == ("antiphon_worker_pace", 1.25)
    assert sample.labels == {"model_name": "m", "worker": "b", "role": "decode"}
