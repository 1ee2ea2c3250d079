"""What commands print: tables, JSON and text that is safe for a terminal."""
