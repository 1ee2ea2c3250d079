"""Facts and requests: all that changes what control decides by, as frozen values."""
