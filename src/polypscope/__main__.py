"""`python -m polypscope` is the command line."""

from polypscope.cli import main

if __name__ == "__main__":
    main()
