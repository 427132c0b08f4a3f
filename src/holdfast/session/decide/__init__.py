"""From a command to events: each module decides one kind of command. Nothing here changes state."""
