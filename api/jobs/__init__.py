"""Jobs in requests: submissions, selections, conversions and output."""
