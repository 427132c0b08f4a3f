"""The text that the model and people read: messages, compaction, rendering."""
