"""The real small model behind HTTP, as an OpenAI-compatible endpoint on loopback: llama.cpp's own server, in this process.

For end-to-end tests that answer through the `openai` backend with a model that really generates. Needs the extra `local`;
`python -m tests.fakes.local_http [PORT]` serves it by hand.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from gateway.backends.local import MODEL, weights


@contextmanager
def local_model(*, context: int = 2048, threads: int = 1, port: int = 0) -> Iterator[str]:
    """The endpoint's base_url, as long as the context lasts. The model's name is `gateway.backends.local.MODEL`."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(weights())
    params.model_alias = {MODEL}
    params.n_ctx, params.n_batch, params.n_ubatch, params.n_parallel = context, 128, 128, 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.n_threads_http = 16  # one holds each request that waits for its turn
    params.n_predict, params.sampling.temp, params.sampling.top_p, params.sampling.seed = 256, 0.2, 0.9, 1
    params.verbosity = -1
    params.warmup = params.fit_params = params.ui = False
    params.port = port
    server = xllamacpp.Server(params)
    try:
        yield f"{server.listening_address}/v1"
    finally:
        del server


if __name__ == "__main__":
    with local_model(port=int(sys.argv[1]) if len(sys.argv) > 1 else 0) as address:
        print(f'base_url = "{address}"\nmodel = "{MODEL}"', flush=True)
        signal.sigwait({signal.SIGINT, signal.SIGTERM})
