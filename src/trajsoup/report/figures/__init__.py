"""One small function for each figure: plain data in, a plotly figure out. No function here reads a file."""
