"""What may be chosen: entries of tables and figures, each with the rows of W it allows."""
