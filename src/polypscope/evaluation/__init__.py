"""Published protocols as pure functions over records: no files, no pictures."""
