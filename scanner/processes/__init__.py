"""Worker processes as their parent sees them: started, asked, replaced; and the machine they run on."""
