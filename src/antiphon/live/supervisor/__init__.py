"""Starts the server's processes, watches them, and leaves none behind.

                   ┌────────────┐  Launch, Stop, Children        ┌─────────┐
    antiphon serve │ supervisor │ ─────────────────────────────► │ gateway │ HTTP, text, routing
                   │            │ ◄───────────────────────────── └─────────┘
                   │            │  Say, Ready, Present, Restart  ┌─────────┐
                   │            │ ◄────────────────────────────► │ workers │ tokens
                   └────────────┘                                └─────────┘

`messages.py` is what they say to each other, `parent.py` the child's end, `child_process.py` the
supervisor's; `child_program.py` runs a child's module. Requests, tokens and KV never pass
through here.
"""
