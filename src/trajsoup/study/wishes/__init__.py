"""What the paper wishes for, held to finished studies: promised, and measured on test against the plain choice."""
