"""Parts of the decoding benchmarks: prompts, the engines compared, the statistics of pairs."""
