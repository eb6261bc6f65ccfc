"""Several RL jobs on one cluster: shares, places and start times, with a bound."""
