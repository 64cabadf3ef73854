"""What a provider does on its side: its API on loopback, real boxes, a money meter, faults.

Emulators are part of the product, for rehearsals, and know no connector.

`server` puts one on a port; `world` is what all emulators share. Each folder has one provider's
rules.
"""
