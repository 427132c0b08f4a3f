"""Models: Holdfast's own `demo` and `script:`, and every provider that Pydantic AI supports."""
