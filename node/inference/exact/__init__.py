"""The exact tier: a Llama-family transformer in integers, the same bits on any honest machine.

`docs/exact.md` specifies every operation and proves the bounds; the comments here name the place.
`tables` holds the integer tables, `quantise` turns a checkpoint into integers, `commitment` hashes
them to the manifest's weights root, `products` multiplies int8 matrices on whatever the machine
has, and `model` is the forward pass behind the interface of `node.inference.model`.
"""
