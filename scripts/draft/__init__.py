"""Making and measuring the draft that ships: prompts, samples, distilling, acceptance."""
