"""Map of a topic: its ledgers to scale, its cursors with their holes, and the kinds of its entries.

`topic_map.py` computes a map from the doctor's facts. `page.py` draws the map with the doctor's findings, or an audit,
as an HTML page; `slots.py` draws key hash ranges; `markup.py` has their elements. `survey.py` sends the requests. All
but the last are pure. `pulsar_ext.cli` draws the map in a terminal.
"""
