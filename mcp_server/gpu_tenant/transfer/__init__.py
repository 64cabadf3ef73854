"""Files between a box and here, as fast as the link and the disk allow, proved as they flow.

`carriage` opens channels, as many as `pace` finds to pay, each with a thread that holds a `conversation`
with the courier on the box. Files from there are cut into `pieces`, gathered in `partial` files and read
back (`proof`) as they come; `arrival` puts that together.
"""
