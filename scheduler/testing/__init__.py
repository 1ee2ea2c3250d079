"""What tests of the scheduler and of its plugins need; shipped, so that plugins can use it too."""
