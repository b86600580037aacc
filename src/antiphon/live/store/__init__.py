"""The store's process: blocks of KV in shared memory and on disk, for workers that come and go.

                    ┌─ worker_session.py ── Put ────► puts.py ──► room.py (shared memory, HostTier)
    port.py ── hello┤                    └─ Locate ─► locates.py ──┘  │ ▲
    (store.sock)    └─ watcher.py ◄── journal of changes ◄────────────┘ │
                          └─ StoreAsk ─► operator.py        disk.py ◄───┘

Decisions are `core.tiers.HostTier`'s. All state is changed on the event loop; threads copy bytes.
"""
