"""Training of drafters with nothing but the target: it writes its own data and teaches itself.

``prompts`` composes user turns, ``data`` has the target write conversations that begin with them,
``fitting`` teaches the ``networks`` on these, ``export`` writes checkpoints; ``run`` does it all.
"""
