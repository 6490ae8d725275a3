"""What a build has below autograd: the overloads it holds, those that a row reaches, and with fake tensors too."""
