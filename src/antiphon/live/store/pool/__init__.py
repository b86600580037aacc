"""A store's part in a pool of stores on several hosts.

    pool_port.py ── PoolHello ──► pool_session.py     another store reads here, and hears of changes
    pool_link.py ──► another store's port             this one reads there, and hears of changes
                │
                └─► pool_member.py ◄─ core.store_pool.StorePool: who has what, and whom to ask
                        │
                        └─► peer_reads.py ─ PageClient ─► the peer's PageServer

Control messages go over streams (TLS where there are keys), KV over data sockets.
"""
