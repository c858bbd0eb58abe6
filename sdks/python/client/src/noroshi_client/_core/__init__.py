"""The protocol without input and output: time and random numbers are arguments. Rules are those of sdks/CONTRACT.md."""
