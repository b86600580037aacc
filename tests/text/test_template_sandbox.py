"""A hostile template can neither reach Python nor hang or fill the process."""

from time import perf_counter

import pytest

from antiphon.errors import ClientError, ModelFileError
from antiphon.text import ChatTemplate

MESSAGES = [{"role": "user", "content": "hello"}]


def render(tokenizer, source, **options):
    ids = ChatTemplate(source, **options).encode(tokenizer, MESSAGES)
    return tokenizer.decode(ids, skip_specials=False)


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.__class__.__init__.__globals__ }}",
        "{{ messages['__class__']['__mro__'] }}",
        "{{ (messages | attr('__class__')).__mro__ }}",
        "{{ messages | map(attribute='__class__.__mro__') | list | first | first }}",
        "{{ raise_exception.__globals__['os'] }}",
        "{{ strftime_now.__closure__[0].cell_contents }}",
        "{{ cycler.__init__.__globals__.os.system('true') }}",
        "{{ namespace.__init__.__globals__ }}",
        "{{ namespace(__class__=1) }}",
        "{% set ns = namespace() %}{% set ns.__class__ = 1 %}{{ ns }}",
        "{{ self.__init__.__globals__ }}",
        "{{ '{0.__class__.__mro__}'.format(1) }}",
        "{{ '{0.__class__}' | format(1) }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update({'role': 'x'}) }}",
        "{{ lipsum.__globals__ }}",
        "{% macro m() %}{% endmacro %}{{ m._func.__globals__ }}",
    ],
)
def test_no_way_into_python(smollm, source):
    with pytest.raises((ClientError, ModelFileError)):
        render(smollm, source)


DOUBLE = (
    "{% set ns = namespace(x='ab') %}{% for i in range(64) %}{% set ns.x = ATTACK %}{% endfor %}"
)

BOMBS = [
    "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "{% for i in range(99999) %}{% for j in range(99999) if false %}{% endfor %}{% endfor %}",
    "{% for i in range(999999999) %}{% endfor %}",
    "{% for i in range(99999) %}{{ 'a' * 1000 }}{% endfor %}",
    "{% set x %}{% for i in range(99999) %}{{ 'a' * 9999 }}{% endfor %}{% endset %}{{ x }}",
    "{% for i in range(99999) %}" + "constant text " * 1000 + "{% endfor %}",
    "{{ 'a' * 10**10 }}",
    "{{ [1] * 10**10 }}",
    "{{ 10**10 * 'a' }}",
    "{{ 9 ** 9 ** 9 }}",
    "{{ '%9999999999d' % 1 }}",
    "{{ '%*d' % (9999999999, 1) }}",
    "{{ '{:{}}'.format(1, 9999999999) }}",
    "{{ ('{0}' * 99999).format('a' * 99999) }}",
    "{{ ([[1] * 99999] * 99999) | sum(start=[]) | length }}",
    "{% set x = [1] * 99999 %}{% for i in range(99999) %}{{ 2 in x }}{% endfor %}",
    "{{ 'a'.ljust(10**10) }}",
    "{{ 'a'.center(10**10) }}",
    "{{ 'a'.zfill(10**10) }}",
    "{{ '\t'.expandtabs(10**10) }}",
    "{{ 'a' | indent(10**10, true) }}",
    "{{ messages | tojson(indent=10**10) }}",
    "{{ '{:9999999999}'.format(1) }}",
    "{% for a in ('a' * 99999) | list %}{{ (('a' * 99999) | list) | sort | length }}{% endfor %}",
    "{{ ('a' * 999999).replace('a', 'b' * 999999) }}",
    "{{ ('a' * 999999) | replace('a', 'b' * 999999) }}",
    "{{ ('a' * 999999) | join('b' * 999999) }}",
    "{{ ('b' * 999999).join('a' * 999999) }}",
    "{{ ([('a' * 999999)] * 99999) | join }}",
    "{{ ([('a' * 999999)] * 99999) | string | length }}",
    "{% macro f(n) %}{{ f(n) }}{{ f(n) }}{% endmacro %}{{ f(1) }}",
    "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    DOUBLE.replace("ATTACK", "ns.x + ns.x"),
    DOUBLE.replace("ATTACK", "ns.x ~ ns.x"),
    DOUBLE.replace("ATTACK", "ns.x * 2"),
    DOUBLE.replace("ATTACK", "ns.x.replace('a', ns.x)"),
    DOUBLE.replace("ATTACK", "[ns.x, ns.x]") + "{{ ns.x }}",
    DOUBLE.replace("ATTACK", "[ns.x, ns.x]") + "{{ ns.x | tojson }}",
    DOUBLE.replace("ATTACK", "[ns.x, ns.x]") + "{{ 'x' ~ ns.x }}",
    DOUBLE.replace("ATTACK", "[ns.x, ns.x]") + "{{ ns.x | string | length }}",
    DOUBLE.replace("ATTACK", "[ns.x, ns.x]") + "{{ ns.x | upper | length }}",
    DOUBLE.replace("ATTACK", "[ns.x, ns.x]") + "{{ '%s' % (ns.x,) }}",
    "{% set ns = namespace(n=3) %}{% for i in range(99) %}{% set ns.n = ns.n * ns.n %}{% endfor %}",
]


@pytest.mark.parametrize("source", BOMBS, ids=lambda source: source[-60:])
def test_bombs_end_soon(smollm, source):
    started = perf_counter()
    with pytest.raises((ClientError, ModelFileError)):
        render(smollm, source, max_chars=500_000)
    assert perf_counter() - started < 10


def test_the_prompt_s_length_is_bounded(smollm):
    source = "{% for i in range(100) %}0123456789{% endfor %}"
    assert len(render(smollm, source, max_chars=1000)) == 1000
    with pytest.raises(ClientError, match="longer than 999 characters"):
        render(smollm, source, max_chars=999)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ messages | tojson }}", '[{"role": "user", "content": "hello"}]'),
        ("{{ {'a': '<é'} | tojson }}", '{"a": "<é"}'),
        ("{{ {'a': '<é'} | tojson(ensure_ascii=true) }}", '{"a": "<\\u00e9"}'),
        ("{{ ['a', 'b'] | join(', ') }} {{ 'x-y' | replace('-', '+') }}", "a, b x+y"),
        ("{{ messages | map(attribute='content') | join('|') }}", "hello"),
        ("{{ messages | selectattr('role', 'equalto', 'user') | list | length }}", "1"),
        ("{{ 'a\nb' | indent(2) }}", "a\n  b"),
        ("{{ 'a,b'.split(',')[-1] }}{{ ' c '.strip() }}{{ 'd'.upper() }}", "bcD"),
        ("{{ '%s and %02d' % ('x', 7) }}", "x and 07"),
        ("{{ '{} {x:>3}'.format(1, x=2) }}", "1   2"),
        ("{{ 2 ** 10 }} {{ 7 * 6 }} {{ 'ab' * 2 }}", "1024 42 abab"),
        ("{% for m in messages recursive %}{{ loop.length }}{% endfor %}", "1"),
        ("{% for x in [1, 2] if x > 1 %}{{ loop.last }}{{ x }}{% endfor %}", "True2"),
        ("{{ undefined_thing }}{{ messages[0].nothing is defined }}", "False"),
        ("{% set ns = namespace(a=1) %}{% set ns.a = 2 %}{{ ns.a }}", "2"),
        ("{{ dict(a=1).items() | list }}", "[('a', 1)]"),
    ],
)
def test_what_templates_need_works(smollm, source, text):
    assert render(smollm, source) == text
