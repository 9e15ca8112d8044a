"""The study file and the stages that turn it into records."""
