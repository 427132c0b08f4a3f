"""Python functions as tools: decorator, signature, schema, strict arguments."""
