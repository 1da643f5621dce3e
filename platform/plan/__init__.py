"""What a start would run: a Plan, how it is built, what it costs and needs. It imports trainables and search_spaces."""
