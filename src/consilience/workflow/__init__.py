"""What commands do, as functions: no parsing of arguments, no printing."""
