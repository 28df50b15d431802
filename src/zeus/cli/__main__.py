"""`python -m zeus.cli`."""

from zeus.cli.main import main

main()
