"""Events, commands and their causes; reasons and troubles."""
