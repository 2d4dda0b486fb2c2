"""The rooms of the dcgmi stand-in. Standard library only, so that it runs on whatever Python is there."""
