"""A topic as a map: its ledgers to scale, its cursors with their holes, and what its entries are.

`topic_map.py` is what a map shows, and how it follows from the doctor's facts; `strip.py` has a cursor in so many
cells, for a picture of any width; `page.py` draws the map with the doctor's findings as one HTML page, `balance.py` a
plan of key hash ranges, and `cover.py` who has which slots, all of the elements in `markup.py`; `survey.py` asks for
what a map needs. All but the last are pure. The terminal's picture is in `cli`.
"""
