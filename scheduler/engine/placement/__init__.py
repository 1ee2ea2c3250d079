"""Place configurations on concrete workers, and grant leases."""
