from hypothesis import given
from hypothesis import strategies as st

from antiphon.workload import AskMix, ask


@given(st.integers(0, 2**40), st.integers(0, 10**6))
def test_an_ask_is_a_function_of_its_seed_and_number(seed: int, number: int) -> None:
    mix = AskMix()
    one = ask(mix, seed, number)
    assert one == ask(mix, seed, number)
    assert one.number == number
    words = len(one.text.split()) - 3
    assert mix.prompt_words[0] <= words <= mix.prompt_words[1]
    assert mix.max_tokens[0] <= one.max_tokens <= mix.max_tokens[1]
    assert one.n in (1, 2)
    assert one.temperature in (0.0, 0.8)


def test_the_shares_are_what_the_mix_says() -> None:
    mix = AskMix(sampled_share=0.25, pair_share=0.5, plain_share=0.0)
    asks = [ask(mix, 3, number) for number in range(2000)]
    assert abs(sum(one.temperature > 0 for one in asks) / 2000 - 0.25) < 0.03
    assert abs(sum(one.n == 2 for one in asks) / 2000 - 0.5) < 0.04
    assert all(one.stream for one in asks)


def test_each_kind_of_ask_comes_as_often_as_its_share_says() -> None:
    mix = AskMix(
        penalty_share=0.5, min_tokens_share=0.25, stop_share=0.75, logprobs_share=0.0, plain_share=1
    )
    asks = [ask(mix, 3, number) for number in range(2000)]
    assert abs(sum(one.repetition_penalty != 1.0 for one in asks) / 2000 - 0.5) < 0.04
    assert abs(sum(one.min_tokens > 0 for one in asks) / 2000 - 0.25) < 0.03
    assert abs(sum(bool(one.stop) for one in asks) / 2000 - 0.75) < 0.03
    assert all(one.top_logprobs is None and not one.stream for one in asks)
    assert all(one.min_tokens <= one.max_tokens for one in asks)


def test_prompts_share_their_beginning_if_the_mix_says_so() -> None:
    mix = AskMix(shared_words=5)
    texts = [ask(mix, 7, number).text.split()[3:8] for number in range(3)]
    assert texts[0] == texts[1] == texts[2]
    assert ask(mix, 7, 0).text != ask(mix, 7, 1).text
