"""Reading and writing: tables with declared columns, whole files, limits on hostile input."""
