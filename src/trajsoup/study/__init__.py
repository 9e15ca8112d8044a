"""The study: its file, its stages, and what joins core, store and engine into a job."""
