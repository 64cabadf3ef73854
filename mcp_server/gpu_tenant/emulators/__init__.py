"""Provider emulators, part of the product: their APIs on loopback, real boxes, a money meter, faults.

`stage` puts one on a port; `world` is what every emulator shares; `<slug>` is one provider's rules.
"""
