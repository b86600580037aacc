"""The store's process: blocks of KV in shared memory and on disk, for workers that come and go.

    port.py ── hello ──┬─ worker_session.py ── Put ──► put_queue.py ─┐
    (store.sock)       │        └── Locate ──► bringing_up.py ───────┼─► tiered_blocks.py
                       └─ watcher.py ── StoreAsk ──► operator.py ────┘      │       ▲
                              ▲                                     HostTier, host_memory.py
                              └──── kv_journal.py ◄── changes ──────────────┘       │
                                             disk_blocks.py, remote_blocks.py ◄── write_behind.py

`kv_store.py` says who is here, and makes the tiers of their model. Decisions are
`core.tiers.HostTier`'s. All state is changed on the event loop; threads copy, read and write bytes.
"""
