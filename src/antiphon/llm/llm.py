"""`LLM`: a model in this process, for scripts and notebooks.

The scheduler and engine of the server, driven without HTTP and without an event loop: the caller's
thread runs step after step until its batch is done. Same prompt, seed and model: same tokens.
"""

import secrets
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self, TypeAlias, TypeGuard

from antiphon.core.config import build
from antiphon.core.validation import DEFAULT_MAX_TOKENS, check_sampling, resolve_sampling
from antiphon.engine import use_cores
from antiphon.errors import ClientError, UsageError
from antiphon.live.loaded_model import LoadedModel, load_model
from antiphon.types import Request, RequestId, SamplingParams, TokenId

from .batch import Answer, Batch, wrong_prompt
from .given_sampling import normal
from .output import RequestOutput

Prompt: TypeAlias = str | Sequence[TokenId]
Conversation: TypeAlias = Sequence[Mapping[str, Any]]

_OF_SERVERS = ("http", "cluster", "router", "store", "log")
_MOST_PROMPTS = 2**20
_ROLES = ("system", "developer", "user", "assistant")
_Input: TypeAlias = tuple[str | None, tuple[TokenId, ...]]
"""The prompt as text, if it was text, and as ids."""


class LLM:
    """A model that is loaded once and then asked batch by batch.

    `config` takes keys of the configuration as nested mappings, but for those of servers alone; the
    named options go over it.
    A batch may have as many prompts as you like, unless `scheduler.max_queue` is set.
    Raises `UsageError` if the model, a setting or the machine is not right. One batch runs at a
    time: a second thread waits. Use it in `with`, or `close` it, to give its memory back.
    """

    def __init__(  # noqa: PLR0913  one argument an option
        self,
        model: str | None = None,
        *,
        config: Mapping[str, Mapping[str, object]] | None = None,
        quantize: str | None = None,
        dtype: str | None = None,
        kv_memory: int | str | None = None,
        max_model_len: int | None = None,
        max_num_seqs: int | None = None,
        cores: Sequence[int] | None = None,
        device: str | None = None,
    ) -> None:
        values = {table: dict(content) for table, content in (config or {}).items()}
        for table in _OF_SERVERS:
            if table in values:
                raise UsageError(
                    f"config: {table} has no effect here, only in a server: leave it out"
                )
        for table, key, value in (
            ("model", "name", model),
            ("model", "quantize", quantize),
            ("model", "dtype", dtype),
            ("model", "max_model_len", max_model_len),
            ("kv", "memory_bytes", kv_memory),
            ("scheduler", "max_num_seqs", max_num_seqs),
            ("engine", "cores", cores),
            ("engine", "device", device),
        ):
            if value is not None:
                values.setdefault(table, {})[key] = value
        values.setdefault("scheduler", {}).setdefault("max_queue", _MOST_PROMPTS)
        settings = build(values)
        use_cores(settings.engine.cores)
        self._model: LoadedModel | None = load_model(settings, lambda line: None)
        self._asked = 0
        self._busy = threading.Lock()

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        progress: bool | None = None,
    ) -> list[RequestOutput]:
        """Continue each prompt (text, or token ids); the results are in the prompts' order.

        `sampling` is for all, or one for each; without it at most 16 tokens are drawn, fewer where
        the context ends. `progress`: show a bar on stderr; None: if that is a terminal. Raises
        `ClientError` before anything runs if a prompt or parameter is wrong.
        """
        if isinstance(prompts, str) or _is_ids(prompts):
            many: list[Any] = [prompts]
        elif isinstance(prompts, Sequence) and not isinstance(prompts, bytes):
            many = list(prompts)
        else:
            raise ClientError("prompts must be a string, token ids, or a list", field="prompts")
        default_max_tokens = DEFAULT_MAX_TOKENS if sampling is None else None
        with self._open() as model:
            inputs = [self._input(model, place, prompt) for place, prompt in enumerate(many)]
            return self._answer(model, inputs, sampling, progress, default_max_tokens)

    def chat(
        self,
        messages: Conversation | Sequence[Conversation],
        sampling: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        progress: bool | None = None,
    ) -> list[RequestOutput]:
        """Answer one conversation, or each of several, by the model's chat template.

        A message is `{"role": "user", "content": "…"}`. `chat_template_kwargs` are what else the
        template asks for, such as `enable_thinking` (JSON data). See `generate`; without
        `sampling` an answer may be as long as the context allows.
        """
        if not isinstance(messages, Sequence) or isinstance(messages, str | bytes):
            raise ClientError("messages must be a list", field="messages")
        one = bool(messages) and isinstance(messages[0], Mapping)
        many: list[Any] = [messages] if one else list(messages)
        with self._open() as model:
            inputs: list[_Input] = [
                (
                    None,
                    model.template.encode(
                        model.tokenizer,
                        _turns(place, conversation),
                        variables=chat_template_kwargs,
                    ),
                )
                for place, conversation in enumerate(many)
            ]
            return self._answer(model, inputs, sampling, progress)

    def close(self) -> None:
        """Give the model's memory back. No effect the second time."""
        with self._busy:
            self._model = None

    def __enter__(self) -> Self:
        with self._open():
            return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _open(self) -> Iterator[LoadedModel]:
        with self._busy:
            if self._model is None:
                raise UsageError("this LLM is closed: make a new one")
            yield self._model

    def _input(self, model: LoadedModel, place: int, prompt: object) -> _Input:
        if isinstance(prompt, str):
            try:
                return prompt, model.tokenizer.encode(prompt, add_bos=model.tokenizer.add_bos)
            except ClientError as error:
                raise wrong_prompt(place, error.message, error.code) from None
        if not _is_ids(prompt):
            raise wrong_prompt(place, "must be a string or a list of token ids")
        return None, tuple(prompt)

    def _answer(
        self,
        model: LoadedModel,
        inputs: list[_Input],
        sampling: SamplingParams | Sequence[SamplingParams] | None,
        progress: bool | None,
        default_max_tokens: int | None = None,
    ) -> list[RequestOutput]:
        if len(inputs) > _MOST_PROMPTS:
            raise ClientError(f"at most {_MOST_PROMPTS} prompts at once", field="prompts")
        if sampling is None or isinstance(sampling, SamplingParams):
            sampling = [sampling or SamplingParams()] * len(inputs)
        if not isinstance(sampling, Sequence) or not all(
            isinstance(params, SamplingParams) for params in sampling
        ):
            raise ClientError(
                "sampling must be SamplingParams, or a list of them", field="sampling"
            )
        if len(sampling) != len(inputs):
            raise ClientError(
                f"{len(inputs)} prompts, but {len(sampling)} sampling parameters: give one for "
                f"all, or one for each",
                field="sampling",
            )
        answers = {}
        for place, ((text, ids), params) in enumerate(zip(inputs, sampling, strict=True)):
            request = self._request(model, place, ids, normal(params), default_max_tokens)
            answers[request.id] = Answer(request, text, model)
        Batch(model, answers).run(sys.stderr.isatty() if progress is None else progress)
        return [answer.result() for answer in answers.values()]

    def _request(
        self,
        model: LoadedModel,
        place: int,
        ids: tuple[TokenId, ...],
        params: SamplingParams,
        default_max_tokens: int | None,
    ) -> Request:
        check_sampling(params, vocab_size=model.info.vocab_size)
        try:
            resolved = resolve_sampling(
                params,
                prompt_len=len(ids),
                max_model_len=model.max_model_len,
                seed=secrets.randbits(63),
                default_max_tokens=default_max_tokens,
            )
        except ClientError as error:
            raise wrong_prompt(place, error.message, error.code) from None
        self._asked += 1
        return Request(
            id=RequestId(f"llm-{self._asked}"),
            prompt=ids,
            sampling=resolved,
            eos_token_ids=() if params.ignore_eos else model.info.eos_token_ids,
        )


def _is_ids(prompt: object) -> TypeGuard[Sequence[TokenId]]:
    """Whether it is one prompt of token ids (their range is the scheduler's to check)."""
    return (
        isinstance(prompt, Sequence)
        and not isinstance(prompt, str | bytes)
        and bool(prompt)
        and all(isinstance(id, int) and not isinstance(id, bool) for id in prompt)
    )


def _turns(place: int, conversation: object) -> list[dict[str, str]]:
    """Checked messages, as chat templates expect them. `developer` is a newer name of `system`."""
    where = f"messages of conversation {place}"
    if not isinstance(conversation, Sequence) or isinstance(conversation, str) or not conversation:
        raise ClientError(f"{where}: must be a list of at least one message", field="messages")
    turns: list[dict[str, str]] = []
    for number, message in enumerate(conversation):
        role = message.get("role") if isinstance(message, Mapping) else None
        content = message.get("content") if isinstance(message, Mapping) else None
        if role not in _ROLES or not isinstance(content, str):
            raise ClientError(
                f'{where}: number {number} must be {{"role": …, "content": "text"}} with a role '
                f"of {', '.join(_ROLES)}",
                field="messages",
            )
        turns.append({"role": "system" if role == "developer" else role, "content": content})
    return turns
