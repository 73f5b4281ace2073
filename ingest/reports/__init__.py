"""Human-readable reports of a job's timeline: tables, pictures and pages."""
