"""`python -m hpclab` is `hpclab`."""

from hpclab.cli import main

main()
