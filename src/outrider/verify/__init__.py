"""Verdicts: which token the target chooses at each row. Per row, in numpy, with no batch in sight.

A row's target distribution is final before any verdict: bias, minimum length, penalties,
temperature and filters are applied with the history that row would have had in plain decoding.
"""
