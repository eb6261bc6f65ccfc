"""From an algorithm to the iteration graph, and the distributions of sequence lengths."""
