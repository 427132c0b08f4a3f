"""Models: `demo` and `script:` of our own, and every provider that Pydantic AI speaks to."""
