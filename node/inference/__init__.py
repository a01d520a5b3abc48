"""How tokens are made: models, drafters, the verifier, and the loop between them.

Knows nothing of networks, keys or chains. A role uses it like this (all through `InferenceWorker`,
which keeps torch in one thread)::

    target = Verifier(load_model(source.path), tokenizer)
    session = target.open(session_id, prompt_ids, params, stops, seed=S, output_ids=())
    outcome = target.verify(session, VerifyRequest(draft, chain_value=v_r))   # VerifyOutcome
    target.close(session)

    drafter = ModelDrafter(load_model(draft.path))          # or LookupDrafter(vocab_size)
    drafting = drafter.open(prompt_ids, params, seed=S, output_ids=())
    draft = drafting.propose(k, coin)                       # Draft
    drafting.commit(outcome.emitted)
    drafting.draft_ahead(n)                                 # while the verifier works

`Draft`, `VerifyOutcome` and the per-position figures are in `proposal`; modes and filters in
`sampling`; ends of an output in `stops`; the choice of the window in `window`.
"""
