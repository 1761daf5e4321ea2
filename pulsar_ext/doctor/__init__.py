"""Diagnosis of topics: why a backlog does not shrink, as far as the admin API shows it.

`findings.py` has the facts of one topic and the classes of a finding. `examination.py` sends the requests and builds
the report by the rules of `rules.py`, pure functions from facts to findings.
"""
