"""`python -m zeus.show_env` and `show_env()`: the names that users of the existing package know for `zeus env`."""

import sys

from zeus.cli.env import env
from zeus.cli.main import main


def show_env() -> None:
    """Print what `zeus env` prints."""
    env.main([], standalone_mode=False)


if __name__ == "__main__":
    main(["env", *sys.argv[1:]])
