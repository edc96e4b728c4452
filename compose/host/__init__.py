"""This host: what it can emulate, how busy it is, and admission of a scenario."""
