"""A topic as a map: its ledgers to scale, its cursors with their holes, and what its entries are.

`topic_map.py` is what a map shows, and how it follows from the doctor's facts; `page.py` draws the map with the
doctor's findings as one HTML page, and an audit, `slots.py` key hash ranges, all of the elements in `markup.py`;
`survey.py` asks for what a map needs. All but the last are pure. The terminal's picture is in `cli`.
"""
