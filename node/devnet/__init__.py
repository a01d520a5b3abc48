"""A whole deployment on one machine: chain, contracts, keys, and every node its own process."""
