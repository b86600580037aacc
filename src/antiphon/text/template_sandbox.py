"""A Jinja environment for templates that nobody here has read.

A chat template comes with the model file. Jinja's immutable sandbox keeps it from reaching Python
(no underscore attributes, no mutation); this one also bounds its work: every rendering has a
budget, in characters, that loops, calls, filters and output draw from, so that neither endless
nested loops nor doubled strings can hang or fill the gateway. What can't be bounded (padding to a
given width) is refused.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sized
from typing import Any

from jinja2 import nodes
from jinja2.compiler import CodeGenerator
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

from .template_budget import STEP_COST, joinable, paid, replaced_size, spend, spend_text
from .template_filters import bounded_filters

_FORBIDDEN_METHODS = frozenset(
    ["center", "expandtabs", "format_map", "ljust", "rjust", "translate", "zfill"]
)
_MAX_INT = 1 << 64
_WIDE_FORMAT = re.compile(r"\*|\d{4}|:[^}]*\{")


class _BoundedCode(CodeGenerator):
    def visit_Template(self, node: nodes.Template, frame: Any = None) -> None:
        super().visit_Template(_BoundedNodes().visit(node), frame)


class _BoundedNodes(NodeTransformer):
    """Sends what loops iterate over, and what is compared or joined by `~`, past the budget."""

    def visit_For(self, node: nodes.For) -> nodes.For:
        self.generic_visit(node)
        constants = (*node.find_all(nodes.TemplateData), *node.find_all(nodes.Const))
        written = sum(len(text.as_const(None)) for text in constants if _is_text(text))
        cost = nodes.Const(STEP_COST + written)
        node.iter = _call_environment("iterated", node.iter, cost, line=node.lineno)
        return node

    def visit_Compare(self, node: nodes.Compare) -> nodes.Compare:
        self.generic_visit(node)
        for side in (node, *node.ops):
            if not isinstance(side.expr, nodes.Const):
                side.expr = _call_environment("weighed", side.expr, line=node.lineno)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Concat:
        self.generic_visit(node)
        node.nodes = [_call_environment("paid", part, line=node.lineno) for part in node.nodes]
        return node


def _is_text(node: nodes.TemplateData | nodes.Const) -> bool:
    return isinstance(node, nodes.TemplateData) or isinstance(node.value, str)


def _call_environment(name: str, *arguments: nodes.Node, line: int) -> nodes.Call:
    return nodes.Call(nodes.EnvironmentAttribute(name), [*arguments], [], None, None, lineno=line)


class _GenerationTag(Extension):
    """`{% generation %}…{% endgeneration %}` marks text for training; here it is only text."""

    tags = {"generation"}  # noqa: RUF012  (Jinja declares a plain set)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _PlainNamespace(Namespace):
    """A namespace that can't pose as another class by attributes such as `__class__`."""

    def __init__(self, /, *args: Any, **kwargs: Any) -> None:
        values = dict(*args, **kwargs)
        for name in values:
            _check_plain(name)
        super().__init__(values)

    def __setitem__(self, name: str, value: Any) -> None:
        """Set an attribute, which must not be an internal one."""
        _check_plain(name)
        super().__setitem__(name, value)


def _check_plain(name: object) -> None:
    if str(name).startswith("_"):
        raise SecurityError(f"the chat template sets the internal attribute {name!r}")


class TemplateSandbox(ImmutableSandboxedEnvironment):
    """The environment that chat templates are compiled in. Render inside `budget`."""

    code_generator_class = _BoundedCode
    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=["jinja2.ext.loopcontrols", _GenerationTag],
            finalize=paid,
        )
        self.globals.pop("lipsum")
        self.globals["namespace"] = _PlainNamespace
        self.filters = bounded_filters(self.filters)

    def paid(self, value: Any) -> Any:
        """`value`, after paying for its text."""
        return paid(value)

    def weighed(self, value: Any) -> Any:
        """`value`, after paying for a look through it."""
        if isinstance(value, str):
            spend(len(value) // STEP_COST)
        else:
            spend_text(value)
        return value

    def iterated(self, values: Iterable[Any], cost: int) -> Iterable[Any]:
        """`values`, after (or while) paying `cost` for each."""
        if isinstance(values, Sized):
            spend(len(values) * cost)
            return values
        return _paying_each(values, cost)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """`str.format` within bounds (None: `value` is something else)."""
        formatted = super().wrap_str_format(value)
        if formatted is None or value.__name__ != "format":
            return None
        if _WIDE_FORMAT.search(value.__self__):
            raise SecurityError("the chat template formats too wide a text")

        def bounded(*args: Any, **kwargs: Any) -> str:
            for argument in (*args, *kwargs.values()):
                for _ in range(value.__self__.count("{")):
                    spend_text(argument)
            return formatted(*args, **kwargs)

        return bounded

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Nothing internal, nothing that pads or formats."""
        if isinstance(obj, str) and attr in _FORBIDDEN_METHODS:
            return False
        return super().is_safe_attribute(obj, attr, value)

    def call(self, context: Any, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call `obj` if the sandbox allows it, paying for what goes in and comes out."""
        spend(STEP_COST)
        owner = getattr(obj, "__self__", None)
        if isinstance(owner, str):
            spend(len(owner))
            name = getattr(obj, "__name__", "")
            if name == "replace" and len(args) >= 2:
                spend(replaced_size(owner, str(args[0]), str(args[1])))
            elif name == "join":
                args = (joinable(args[0], owner), *args[1:]) if args else args
        result = super().call(context, obj, *args, **kwargs)
        if isinstance(result, str | list | tuple):
            spend(len(result))
        return result

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Operators that can make something large from something small."""
        spend(STEP_COST)
        if operator == "+" and isinstance(left, Sized) and isinstance(right, Sized):
            spend(len(left) + len(right))
        elif operator == "*":
            self._spend_product(left, right)
        elif operator == "**" and not _is_small_power(left, right):
            raise SecurityError("the chat template computes too large a power")
        elif operator == "%" and isinstance(left, str):
            if _WIDE_FORMAT.search(left):
                raise SecurityError("the chat template formats too wide a text")
            spend_text(right)
        result = super().call_binop(context, operator, left, right)
        if isinstance(result, int) and abs(result) > _MAX_INT:
            raise SecurityError("the chat template computes too large a number")
        return result

    @staticmethod
    def _spend_product(left: Any, right: Any) -> None:
        for sequence, count in ((left, right), (right, left)):
            if isinstance(sequence, Sized) and isinstance(count, int):
                spend(len(sequence) * max(count, 0))


def _is_small_power(base: Any, exponent: Any) -> bool:
    return abs(base) < _MAX_INT and abs(exponent) <= 64


def _paying_each(values: Iterable[Any], cost: int) -> Iterator[Any]:
    for value in values:
        spend(cost)
        yield value
