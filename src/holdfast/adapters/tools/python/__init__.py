"""Python functions as tools: decorator, signature, schema and strict arguments."""
