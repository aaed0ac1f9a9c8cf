"""Learning scripts, one a file: ``python -m training.ppo --help``."""
