"""How many tokens to draft: tokens per second, estimated from what was measured.

Lengths may depend on timings and on luck, because no length can change a token. Nothing here knows
a drafter, a session or a tensor: numbers go in and come out.
"""
