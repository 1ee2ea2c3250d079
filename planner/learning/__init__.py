"""Jobs whose batch may change: how fast they learn, and what was measured of them."""
