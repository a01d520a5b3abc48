"""What is committed, proven and paid.

Nothing in this package knows how tokens are made or moved. Most modules are pure: they need the
standard library, NumPy, one keccak and one secp256k1 library. `chain/`, `settler`, `challenges`,
`duties` and the watchers (`watcher`, `claim_watch`, `panel_watch`) are the shell around them.
"""
