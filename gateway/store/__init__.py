"""Where sessions are kept. `base` is the interface, `jsonl` and `memory` implement it; only `gateway.app` names one of them."""
