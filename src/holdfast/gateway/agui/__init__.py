"""AG-UI over HTTP: a thread is a session, a run follows one turn, and an interrupt is a prompt."""
