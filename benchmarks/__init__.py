"""Speed against rivals, always as a ratio within one run."""
