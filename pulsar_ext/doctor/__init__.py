"""Why a backlog does not go away: what the admin API shows of topics, and what follows from it.

`findings.py` has what is found; `facts.py` what is known of one topic; each other module finds things in it (pure), and
`observation.py` asks for it, and `examination.py` puts the report together.
"""
