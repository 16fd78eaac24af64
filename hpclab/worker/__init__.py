"""One rank: its environment variables, its signals, and the composition of everything it trains with."""
