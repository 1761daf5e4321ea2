"""Map of a topic: its ledgers to scale, its cursors with their holes, and the kinds of its entries.

`topic_map.py` computes a map from the doctor's facts. `page.py` draws maps with the doctor's findings, audits and key
hash ranges as HTML pages, by the templates in `templates/`. `survey.py` sends the requests. All but the last are pure.
`pulsar_ext.cli` draws the map in a terminal.
"""
