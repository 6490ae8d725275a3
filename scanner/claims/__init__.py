"""What the documented lists of PyTorch releases say, and which rows speak to it."""
