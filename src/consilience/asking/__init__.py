"""Ask models: an item in a variant becomes a row of the answers table, whatever it is."""
