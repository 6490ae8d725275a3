"""The trace of a build: which overloads each case reached, as expected with fake tensors; never measured."""
