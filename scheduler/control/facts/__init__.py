"""Facts and requests: every input that changes control's state, as frozen values."""
