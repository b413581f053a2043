"""What Polypscope does, as functions: one function = one command.

Each submodule holds the functions of one topic. They import heavy libraries inside, so that `polypscope --help`
stays fast; the command line (`cli.py`) is a table over them and adds nothing.
"""
