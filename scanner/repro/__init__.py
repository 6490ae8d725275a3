"""Scripts that reproduce a row with torch alone."""
