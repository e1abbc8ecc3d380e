"""Chat networks, one folder or file each. Nothing here knows of sessions, models or files: a channel turns updates into `Inbound` and
rendered pieces into messages, behind the protocol in `channels.base`. Imports nothing of `gateway`."""
