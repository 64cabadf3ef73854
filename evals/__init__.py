"""How well the skill is found, how much it answers, and whether a wrong fact would be noticed."""
