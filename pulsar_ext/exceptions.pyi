# Seen by type checkers only: at run time this is the official module itself.
from pulsar.exceptions import *
