"""The gateway: sessions, turns and delivery. Reading order in docs/architecture.md, "Reading the source"."""

__version__ = "0.1.0"
