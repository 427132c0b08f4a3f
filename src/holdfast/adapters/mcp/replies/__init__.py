"""From the replies of a server to the outcome of a call: results, questions and tasks."""
