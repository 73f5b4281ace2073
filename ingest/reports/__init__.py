"""What people see of a job: its timeline in tables, pictures and pages."""
