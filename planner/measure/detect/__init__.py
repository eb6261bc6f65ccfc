"""What a machine or a cluster manager says of its accelerators."""
