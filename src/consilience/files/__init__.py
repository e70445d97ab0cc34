"""Reading and writing: tables with declared columns, and whole files."""
