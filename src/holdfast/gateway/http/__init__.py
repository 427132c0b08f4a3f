"""One HTTP request: protocol, guard, authentication, routing, bodies, problems."""
