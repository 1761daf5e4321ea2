"""Map of a topic: its ledgers to scale, its cursors with their holes, and the kinds of its entries.

`survey.py` requests the doctor's facts and computes a map from them. `page.py` (pure) draws maps with the doctor's
findings, audits and key hash ranges as HTML pages, by the templates in `templates/`. `pulsar_ext.cli` draws the map in
a terminal.
"""
