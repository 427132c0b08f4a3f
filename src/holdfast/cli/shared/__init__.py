"""Parts that several commands use: options, completion, identity, consent, the open service."""
