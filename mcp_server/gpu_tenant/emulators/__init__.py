"""Provider emulators, part of the product: their APIs on loopback, real boxes, a money meter, faults.

`server` puts one on a port; `world` is what all emulators share; each folder has one provider's
rules.
"""
