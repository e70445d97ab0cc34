"""The folder of a run: its record, its answers, and how it is opened again."""
