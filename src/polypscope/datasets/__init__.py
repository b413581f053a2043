"""One file per data set: a card, `check(root)` in words, and lazy records."""
