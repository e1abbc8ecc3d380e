"""What people steer conversations with, one small file a family. `table` is the list; `base` says what a command is."""
