"""Projects: rules, budgets and reservations."""
