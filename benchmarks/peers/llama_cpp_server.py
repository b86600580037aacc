"""llama.cpp's HTTP server, as the `xllamacpp` wheel carries it, until its standard input ends.

    python llama_cpp_server.py '{"model": "model.gguf", "port": 9000, "threads": 2, …}'

Runs in the peer's own virtualenv. `slots` requests are computed at once (continuous batching), each
with `slot_tokens` of KV memory; more wait.
"""

import json
import sys

import xllamacpp


def parameters(
    model: str, port: int, threads: int, slots: int, slot_tokens: int
) -> xllamacpp.CommonParams:
    found = xllamacpp.CommonParams()
    found.model.path = model
    found.model_alias = ["measured"]
    found.hostnames = ["127.0.0.1"]
    found.port = port
    found.cpuparams.n_threads = found.cpuparams_batch.n_threads = threads
    found.n_parallel = slots
    found.n_ctx = slots * slot_tokens
    found.cont_batching = True
    found.fit_params = False
    found.verbosity = 0
    return found


if __name__ == "__main__":
    server = xllamacpp.Server(parameters(**json.loads(sys.argv[1])))
    print(server.listening_address, flush=True)
    sys.stdin.read()
