"""The work tree of every episode, which the referee imports to know what it must leave."""
