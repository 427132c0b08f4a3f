"""Commands as jobs: their supervisor, authenticated reports and files."""
