"""Are the settings that `evaluate` recommends the best ones on machines it has not seen?"""
