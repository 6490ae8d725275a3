"""What libraries document of reproducibility, and which ops call them: documented, never measured."""
