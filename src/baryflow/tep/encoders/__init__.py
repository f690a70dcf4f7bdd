"""Networks that make features of signals. They know files of signals, and nothing of the plant."""
