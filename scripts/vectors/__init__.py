"""What `make_vectors` draws its cases from."""
