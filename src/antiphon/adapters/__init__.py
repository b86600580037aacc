"""Foreign systems, one file each: nothing here is needed until it is asked for."""
