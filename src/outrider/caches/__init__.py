"""Two-phase caches: rows are staged, then the kept ones are committed."""
