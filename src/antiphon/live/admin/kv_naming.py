"""Which blocks an operator means: from a prompt and a tenant to block keys.

The prompt becomes tokens by the code that serves it, and the keys are the workers' own: what is
found is what a request of that tenant would find.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from antiphon.core.kv import BlockKeys, tenant_of
from antiphon.errors import ClientError
from antiphon.live.gateway import Prompts
from antiphon.live.gateway.auth import ANYONE, Tenant
from antiphon.live.gateway.body import parse
from antiphon.live.gateway.chat_schema import ChatBody
from antiphon.types import BlockKey, ModelInfo, TokenId

from .kv_orders import PROMPT_FORMS, KvOrder, KvPrompt

MAX_KEYS = 200_000
"""Most blocks that one order may name, over all tenants."""
_FEW = 500
"""So many are named on the event loop: it takes 2 µs each."""


@dataclass(frozen=True, slots=True)
class Party:
    """Whose blocks, computed how. `place`: of the key in its file, from 1; None: there are none."""

    place: int | None
    salt: bytes
    numerics: str

    @property
    def tenant(self) -> bytes:
        """What the store knows it by."""
        return tenant_of(self.salt)


@dataclass(frozen=True, slots=True)
class Named:
    """The complete blocks that a prompt begins with, as one party's requests name them."""

    party: Party
    keys: tuple[BlockKey, ...]


class KvNaming:
    """`tenants` are those of the API keys, in the order of their file; none: nobody needs one.

    `numerics` says under which numerics ids the workers compute now.
    """

    def __init__(
        self,
        prompts: Prompts,
        model: ModelInfo,
        block_tokens: int,
        tenants: Sequence[Tenant],
        numerics: Callable[[], Sequence[str]],
    ) -> None:
        self._prompts = prompts
        self._model = model
        self._tenants = tenants
        self._numerics = numerics
        self.block_tokens = block_tokens

    async def tokens(self, prompt: KvPrompt) -> tuple[TokenId, ...]:
        """The prompt's token ids. Raises `ClientError` for what is no prompt of this model."""
        forms = (prompt.text is not None, prompt.tokens is not None, bool(bytes(prompt.chat)))
        if sum(forms) != 1:
            raise ClientError(f"name a prompt by one of {', '.join(PROMPT_FORMS)}")
        if prompt.text is not None:
            [ids] = await self._prompts.texts([prompt.text])
        elif prompt.tokens is not None:
            ids = tuple(prompt.tokens)
            if any(not id >= 0 for id in ids):
                raise ClientError("tokens: a token id is 0 or more", field="tokens")
            self._prompts.check_ids(ids, "tokens")
        else:
            body = parse(ChatBody, bytes(prompt.chat))
            ids = await self._prompts.chat(body.messages, variables=body.chat_template_kwargs)
        return ids

    async def named(self, ids: Sequence[TokenId], parties: Sequence[Party]) -> list[Named]:
        """The blocks, for each party. Raises `ClientError` if there is none, or are too many."""
        blocks = len(ids) // self.block_tokens
        if blocks == 0:
            raise ClientError(
                f"the prompt has {_tokens(len(ids))}, less than a block of {self.block_tokens}: "
                f"only complete blocks are kept"
            )
        if blocks * len(parties) > MAX_KEYS:
            raise ClientError(
                f"{blocks} blocks of {len(parties)} tenants are too many at once (at most "
                f"{MAX_KEYS}): name one tenant"
            )
        if blocks * len(parties) <= _FEW:
            return [Named(party, self._keys(ids, blocks, party)) for party in parties]
        return await asyncio.to_thread(
            lambda: [Named(party, self._keys(ids, blocks, party)) for party in parties]
        )

    def parties(self, order: KvOrder) -> list[Party]:
        """Who is meant. Raises `ClientError` if it must be said, or there is no such one."""
        many = len(self._tenants)
        if order.all_tenants and order.tenant is not None:
            raise ClientError("give a tenant or all_tenants, not both", field="tenant")
        if not many:
            if order.tenant is not None:
                raise ClientError(
                    "this server has no API keys: all requests are of one tenant, leave it out",
                    field="tenant",
                )
            places: list[tuple[int | None, Tenant]] = [(None, ANYONE)]
        elif order.all_tenants:
            places = list(enumerate(self._tenants, 1))
        elif order.tenant is None:
            raise ClientError(
                f"this server has {many} API keys, and each tenant blocks of its own: say whose "
                f"are meant by the key's place in its file, 1 to {many} (--tenant), or all of them "
                f"(--all-tenants)",
                field="tenant",
            )
        elif 1 <= order.tenant <= many:
            places = [(order.tenant, self._tenants[order.tenant - 1])]
        else:
            raise ClientError(
                f"there is no tenant {order.tenant}: the key file has {many} keys, counted from 1",
                field="tenant",
            )
        return [
            Party(place, tenant.salt, numerics)
            for place, tenant in places
            for numerics in self._numerics()
        ]

    def _keys(self, ids: Sequence[TokenId], blocks: int, party: Party) -> tuple[BlockKey, ...]:
        naming = BlockKeys(
            identity=self._model.identity,
            numerics=party.numerics,
            salt=party.salt,
            block_tokens=self.block_tokens,
        )
        keys: list[BlockKey] = []
        naming.extend(keys, ids, blocks)
        return tuple(keys)


def _tokens(count: int) -> str:
    return "1 token" if count == 1 else f"{count} tokens"
