"""The command line: options become click parameters, results are printed, errors are messages."""
