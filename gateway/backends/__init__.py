"""What answers. `base` is the interface; its implementations are sibling files, named only by `gateway.app`'s table."""
