"""The store's process: blocks of KV in shared memory and on disk, for workers that come and go.

    port.py ── hello ──┬─ worker_session.py ── Put ──────────────────┐
    (store.sock)       │        └── Locate ──► bringing_up.py ───────┼─► tiered_blocks.py
                       └─ watcher.py ── StoreAsk ──► operator.py ────┘      │       ▲
                              ▲                                     HostTier, host_memory.py
                              └──── kv_journal.py ◄── changes ──────────────┘       │
                                           disk_blocks.py, remote_blocks.py ◄── written_behind.py

`kv_store.py` says who is here, and makes the tiers of their model. What is kept, written, read and
dropped, and in which order, `core.tiers` decides. All state is changed on the event loop; threads
copy, read and write bytes.
"""
