"""
From settings to a running service: the only package that names adapters.

Heavy modules are imported where they are used: listing open prompts needs no model provider, no web
framework and no shell parser.
"""
