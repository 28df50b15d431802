"""`python -m zeus.show_env`: the name that users of the existing package know for `zeus env`."""

import sys

from zeus.cli.main import main

if __name__ == "__main__":
    main(["env", *sys.argv[1:]])
