"""What is committed, proven and paid.

Nothing in this package knows how tokens are made or moved. The pure modules (records, trees,
coins, acceptance, payments, alpha, faults) need the standard library, NumPy, one keccak and one
secp256k1 library; `chain/`, `settler` and `watcher` are the shell around them.
"""
