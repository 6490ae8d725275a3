"""What all reports are made with: Markdown, pages, JSON, files, blocks in files."""
