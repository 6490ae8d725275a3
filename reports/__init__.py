"""Say what it means: the matrix of a run file in Markdown, HTML, CSV and JSON. Needs no torch."""
