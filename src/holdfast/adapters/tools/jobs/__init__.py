"""Commands as jobs: supervisor, authenticated reports, files."""
