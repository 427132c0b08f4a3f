"""Parts that several commands use: options, output, identity, opening the service."""
