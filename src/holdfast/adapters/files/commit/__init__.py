"""The path of one append to the disk: queue, write, sync, anchor, acknowledge."""
