"""How tokens are made: models, drafters, the verifier, and the loop between them.

Knows nothing of networks, keys or chains. A role uses it like this (all through `InferenceWorker`,
which keeps torch in one thread)::

    target = Verifier(load_model(folder), Tokenizer.load(folder))
    session = target.open(session_id, prompt_ids, params, stops, seed=S, output_ids=())
    outcome = target.verify(session, VerifyRequest(draft, chain_value=v_r))   # VerifyOutcome
    outcome.decision.outcomes[i].leaf(salted)               # a verdict leaf's figures
    target.close(session)

    drafter = ModelDrafter(load_model(draft_folder))        # or LookupDrafter()
    drafting = drafter.open(prompt_ids, params, seed=S, output_ids=())
    draft = drafting.propose(k, coin)                       # Draft
    drafting.commit(outcome.emitted)
    drafting.draft_ahead(n)                                 # while the verifier works

`Draft`, `VerifyRequest`, `VerifyOutcome` are in `proposal`; modes, filters in `sampling`; ends of
an output in `stops`; the choice of the window in `window`; `generate` is the whole loop in one
process; `plain` is decoding without it, the comparison of the two, and an auditor's `replay`.
"""
