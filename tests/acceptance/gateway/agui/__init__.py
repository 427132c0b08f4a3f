"""AG-UI, spoken plainly over HTTP and by the real client of npm."""
