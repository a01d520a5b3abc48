"""How nodes talk: one Transport interface, two transports behind it, and discovery.

`transport` is what roles are written against; `messages` and `exchange` give its bytes types;
`libp2p_transport` is the real one and `memory` the one for tests; `gossip` finds peers.
"""
