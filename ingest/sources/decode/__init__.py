"""From raw records to rows of the job's schema: JSON, CSV and text, for every source."""
