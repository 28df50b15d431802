"""`python -m zeus.show_env`: the name that users of the existing package know for `zeus env`."""

from zeus.cli.env import env

if __name__ == "__main__":
    env()
