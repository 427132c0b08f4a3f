"""Files that a command runs: bound to the approved bytes, or declared in the prompt."""
