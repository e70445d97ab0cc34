"""Results of a run in the formats of others: Every Eval Ever, and model cards of the Hub."""
