"""One session's journal in the database: read, verified and followed by this process."""
