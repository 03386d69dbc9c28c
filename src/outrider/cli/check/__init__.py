"""``outrider check``: prove on this machine that nothing but the request decides an answer."""
