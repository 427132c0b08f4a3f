"""One session's files: segments, anchor, locks, claim, quarantine, outputs."""
