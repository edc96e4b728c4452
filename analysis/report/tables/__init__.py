"""Tables of the report: the rows with their texts, which the page only lays out."""
