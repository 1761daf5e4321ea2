"""Why a backlog does not go away: what the admin API shows of topics, and what follows from it.

`findings.py` has what is known of one topic and what is found; each other module finds things in it (pure), and
`examination.py` asks for it and puts the report together.
"""
