"""The rows that an entry of PyTorch's databases gives, chosen and enlarged by trying them."""
