"""Live streams over HTTP: sessions and inboxes."""
