"""``python -m baryflow``: the command line."""

from baryflow.cli import main

if __name__ == "__main__":
    main()
