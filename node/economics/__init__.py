"""What lying pays: honest and dishonest strategies, paid and punished by the node's own rules.

Pure: standard library, NumPy and the pure modules of `settlement`. Amounts of money are integers in
units of the stake token; costs of computing are in the same units, so that payoffs can be compared.

    market      what a session costs and how often drafts are accepted; sessions sampled in bulk
    terms       what is paid for, drawn and punished, and the chances that follow
    strategies  who does what
    play        one pairing over many batches: sampled, paid, drawn, slashed, every unit booked
    expected    the same in closed form: gains, break-evens, and where honest play stops being best
    roles       clients, auditors and pairs
    bias        the drafter that steers ambiguous positions, before the α test of the node
    report      all of it as tables and JSON
    plots       all of it as pictures (needs matplotlib)
"""
