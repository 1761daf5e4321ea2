"""Key hash ranges: slots of keys, readers and consumers of ranges, Key_Shared policies."""
