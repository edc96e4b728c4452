"""Planning of a trial whose strategy is chosen among candidates."""
